/* weights_in_place.h: for platforms whose products take weights from memory as they are, rather than from a stream. */

typedef struct weight_source {
    uint32_t none;
} weight_source;
FLEET_DEVICE weight_source weights_open(const fleet_ctx *ctx)
{
    weight_source w;
    (void)ctx;
    w.none = 0;
    return w;
}
#define DECODER_DISPATCH(set, LIST) FLEET_DISPATCH(set, LIST)
#define DECODER_STREAM_BYTES 0u
