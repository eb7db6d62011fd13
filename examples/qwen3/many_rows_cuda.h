/* many_rows_cuda.h: products of many rows on NVIDIA GPUs that have wgmma (compute capability 9.0a), which takes both
   operands from LDS: the weights from the stream's ring, as they came, and the rows from buffers that bulk copies fill.

   With many rows what limits a product is the way of the rows from the L2 to each SM. So a worker computes MOST_TOGETHER
   tiles of columns at once, whose sums four waves keep in registers: the rows come once for all of them. Where
   there are fewer tiles than that for each worker, some workers have the same tiles, and each a part of the k's; they
   leave their sums in memory, and each adds up those of some tiles, in the order of the parts.

   Four waves multiply, one copies rows, and one finds out by what to divide them. */

#if !defined(FEW_ROWS)
#define FEW_ROWS 16u /* with more of them this is faster */
#endif
#define MOST_TOGETHER 12u  /* tiles: 96 registers of sums */
#define MULTIPLIERS 4u     /* waves: those of a warpgroup, 16 rows each */
#define COPIER MULTIPLIERS /* number of a wave */
#define SCALER (MULTIPLIERS + 1)
#define TILE_SUMS 8u /* of a lane */
#define JOINT (MOST_TOGETHER * MOST_ROWS * TILE)

/* In a ring of other sizes its end would be between the pieces of a wide tile. */
#if HAS_WGMMA && DECODER_SLOTS % 6 == 0
/* ---- who has what ---- */

/* A worker's share of a layer: rounds of wide tiles from `tile` on, `apart` apart, and of each the chunks of k's from
   `chunk` to `chunk_end`. */
typedef struct many_share {
    uint32_t tile, apart, end; /* end: of the tiles */
    uint32_t next;             /* how far on the worker's next rounds are */
    uint32_t most_rounds;
    uint32_t part, parts, group; /* of the k's; the workers that share tiles are a group */
    uint32_t chunk, chunk_end;
} many_share;

FLEET_DEVICE many_share many_share_of(const op *o, const fleet_ctx *ctx)
{
    const tile_range range = tiles_of(o, ctx);
    const fleet_part slice = fleet_linear_part(&o->shape, ctx->slice, ctx->slices);
    const uint32_t workers = ctx->tile_num, chunks = ceil_div(o->shape.k, PIECE_K);
    const uint32_t most = MOST_TOGETHER / (o->shape.tile_n / TILE);
    const uint32_t groups = ceil_div(slice.n_tiles, most);
    many_share s;
    s.most_rounds = most;
    s.parts = groups && groups <= workers ? workers / groups : 1;
    if (s.parts > chunks) s.parts = chunks;
    if (s.parts > 1) {
        const uint32_t place = range.first - slice.first_n;
        s.group = place / s.parts, s.part = place % s.parts;
        s.tile = slice.first_n + s.group * most, s.apart = 1;
        s.end = range.end;
        if (s.tile > s.end) s.tile = s.end;
        if (s.end > s.tile + most) s.end = s.tile + most;
        s.next = most;
    } else {
        s.group = s.part = 0;
        s.tile = range.first, s.apart = range.step, s.end = range.end;
        s.next = most * range.step;
    }
    s.chunk = chunks * s.part / s.parts, s.chunk_end = chunks * (s.part + 1) / s.parts;
    return s;
}
FLEET_DEVICE uint32_t rounds_at(const many_share *s, uint32_t tile)
{
    const uint32_t rounds = ceil_div(s->end - tile, s->apart);
    return rounds < s->most_rounds ? rounds : s->most_rounds;
}

/* The stream has the pieces in the order in which they are multiplied: of all rounds those with the same k's. The pieces
   of a wide tile are one operand: no end of the ring may be between them. Some pieces in front see to that. */
FLEET_STREAM(linear_many, op)
{
    const many_share s = many_share_of(args, &ctx);
    const uint32_t wide = args->shape.tile_n / TILE, bytes = wide * SLOT_BYTES;
    FLEET_UNUSED(at);
    fleet_span_pace(spans, PIECES_APART);
    fleet_span(spans, args, OWN_BYTES);
    while (fleet_span_slot(spans) % wide) fleet_span(spans, args, 16);
    for (uint32_t tile = s.tile; tile < s.end; tile += s.next)
        for (uint32_t chunk = s.chunk; chunk < s.chunk_end; chunk++)
            for (uint32_t r = 0; r < rounds_at(&s, tile); r++)
                fleet_span(spans,
                           (const char *)(const void *)weights_of(args, tile + r * s.apart) +
                               (size_t)chunk * bytes,
                           bytes);
}
FLEET_DEVICE void pass_over(weight_source *source, uint32_t wide)
{
    while (fleet_weights_slot(&source->weights) % wide && !source->status) {
        if (fleet_wave_id() == 0) {
            if (fleet_weights_next(&source->weights))
                fleet_weights_release(&source->weights, 1);
            else
                source->status = fleet_weights_status(&source->weights);
        } else {
            fleet_weights_skip(&source->weights, 1);
        }
    }
}

/* ---- rows ---- */

/* As of other products. Rows are where these have parts and sums; when they are through, sums are there again, and what they
   are added to is in place of parts. */
FLEET_DEVICE product_lds many_lds_of(const fleet_ctx *ctx, uint32_t columns, uint32_t rows)
{
    product_lds l = product_lds_of(ctx, rows);
    l.ahead = l.parts, l.ahead_rows = PRODUCT_PARTS / columns - 1;
    return l;
}

/* Rows come in units of ROW_BLOCKS blocks, a group of eight rows behind the other; where activations have two terms, the
   units of the second ones are between those of the first. wgmma reads MOST_ROWS rows, whether they are there or not:
   what it finds behind the last one goes to sums that nobody looks at. */
#define ROW_BLOCKS 2u
#define ROW_GROUP_BYTES (ROW_BLOCKS * ATOM * 2)
#define ROW_BYTES ((PRODUCT_PARTS + PRODUCT_SUMS) * 4)  /* of all buffers */
#define ROW_BUFFERS (ROW_BYTES / (4 * ROW_GROUP_BYTES)) /* of 32 rows; of 64 half as many */
typedef struct row_units {
    const act *x;
    uint32_t second, terms; /* terms: less 1 */
    uint32_t groups, width; /* width: blocks of x */
    uint32_t first, end;    /* blocks of the share */
    uint32_t lds, bytes;    /* of a buffer */
    uint32_t counts;        /* in LDS, of each buffer two */
    uint32_t buffer, use;   /* of the next unit */
} row_units;

FLEET_DEVICE row_units row_units_of(const operand *in, const many_share *s, const product_lds *l)
{
    row_units u;
    u.x = in->x, u.second = in->second, u.terms = uniform(in->second != 0);
    u.groups = ceil_div(in->rows, EIGHT), u.width = uniform(in->k / BLOCK);
    u.first = uniform(s->chunk * SLOT_BLOCKS), u.end = uniform(s->chunk_end * SLOT_BLOCKS);
    if (u.end > u.width) u.end = u.width;
    u.bytes = (u.groups > 4 ? 8 : 4) * ROW_GROUP_BYTES;
    u.lds = lds_address(l->parts), u.counts = lds_address(l->behind);
    u.buffer = u.use = 0;
    return u;
}
FLEET_DEVICE uint32_t row_buffer(const row_units *u)
{
    return u->lds + u->buffer * u->bytes;
}
/* Of this use of the buffer: its copies are there; and its multipliers are through. */
FLEET_DEVICE uint32_t row_full(const row_units *u)
{
    return u->counts + u->buffer * 16;
}
FLEET_DEVICE uint32_t row_free(const row_units *u)
{
    return u->counts + u->buffer * 16 + 8;
}
FLEET_DEVICE void next_rows(row_units *u)
{
    if (++u->buffer == ROW_BYTES / u->bytes) u->buffer = 0, u->use++;
}

/* Once for a task; behind a barrier of all before they are used, and closed behind the last use. */
FLEET_DEVICE void open_rows(const product_lds *l)
{
    const uint32_t counts = lds_address(l->behind);
    for (uint32_t i = 0; i < ROW_BUFFERS; i++)
        count_open(counts + i * 16, 1), count_open(counts + i * 16 + 8, MULTIPLIERS);
    counts_opened();
}
FLEET_DEVICE void close_rows(const product_lds *l)
{
    for (uint32_t i = 0; i < 2 * ROW_BUFFERS; i++) count_close(lds_address(l->behind) + i * 8);
}

/* The copier's: all units of a share, a group of rows each lane. */
FLEET_DEVICE void copy_rows(row_units *u)
{
    const uint32_t lane = fleet_lane();
    ROLLED
    for (uint32_t block = u->first; block < u->end; block += ROW_BLOCKS) {
        const uint32_t left = u->end - block, blocks = left < ROW_BLOCKS ? left : ROW_BLOCKS;
        ROLLED
        for (uint32_t term = 0; term <= u->terms; term++, next_rows(u)) {
            /* Pair: the multipliers' count_down when they are through with what the buffer held. */
            if (u->use) count_wait(row_free(u), u->use - 1);
            if (lane == 0) count_expect(row_full(u), u->groups * blocks * ATOM * 2);
            fleet_wave_barrier();
            if (lane < u->groups)
                copy_bulk(row_buffer(u) + lane * ROW_GROUP_BYTES,
                          u->x + ((size_t)lane * u->width + block) * ATOM + (term ? u->second : 0),
                          blocks * ATOM * 2, row_full(u));
        }
    }
}

/* ---- products ---- */

/* A multiplier's: a block of the rows with that of each wide tile, `at` bytes behind where its pieces begin. */
FLEET_DEVICE void multiply_block(float *sum, uint32_t rows, uint32_t at, const uint32_t *piece,
                                 const uint32_t wide)
{
    UNROLLED
    for (uint32_t half = 0; half < 2; half++) {
        const uint32_t k = half * (TILE * 2); /* in bytes */
        const operand_at a = lds_operand(rows + k, ROW_GROUP_BYTES);
        UNROLLED
        for (uint32_t r = 0; r < MOST_TOGETHER / wide; r++)
            multiply_rows(sum + r * wide * TILE_SUMS, wide, a,
                          lds_operand(piece[r] + at + k, PIECE_HALF * 2));
    }
}

/* Each multiplier gives back what all have taken: they have six shares, two of them two each. */
#define SHARES(wave) ((wave) < 2 ? MOST_WAVES / 2 : MOST_WAVES)

/* The multipliers' part: adds up `rounds` wide tiles. The products of a block are under way while those of the one before
   are waited for. Whether one of the waves got no pieces they find out together: wgmma is an instruction of all four.
   The rows go on then, for the copier waits for them to be used; and products, too: whatever is in LDS, nobody looks at
   the sums. So it is with rounds that there are not. While products are under way there is no branch that lanes take
   differently, or ptxas would make each wgmma wait for the one before. */
FLEET_DEVICE void add_many(weight_source *source, row_units *u, uint32_t wave, uint32_t rounds,
                           float *sum, const uint32_t wide)
{
    ROLLED
    for (uint32_t chunk = u->first; chunk < u->end; chunk += SLOT_BLOCKS) {
        const uint32_t left = u->end - chunk, blocks = left < SLOT_BLOCKS ? left : SLOT_BLOCKS;
        const uint32_t slot = fleet_weights_slot(&source->weights);
        const void *first = NULL;
        uint32_t piece[MOST_TOGETHER]; /* the first one of each wide tile: where it is in LDS */
        uint32_t used = 0;             /* the rows of the products that are under way */
        if (!source->status) {
            first = fleet_weights_take(&source->weights, rounds * wide);
            if (!first) source->status = fleet_weights_status(&source->weights);
        }
        if (any_multiplier(!first) && !source->status) source->status = FLEET_ERROR_ABORTED;
        UNROLLED
        for (uint32_t r = 0; r < MOST_TOGETHER / wide; r++) {
            const uint32_t ahead = r < rounds ? r * wide : 0;
            const uint32_t wrapped = slot + ahead < DECODER_SLOTS ? 0 : DECODER_SLOTS;
            piece[r] = uniform(
                source->status ? u->lds : lds_address(first) + (ahead - wrapped) * SLOT_BYTES);
        }
        ROLLED
        for (uint32_t at = 0; at < blocks; at += ROW_BLOCKS) {
            ROLLED
            for (uint32_t term = 0; term <= u->terms; term++, next_rows(u)) {
                const uint32_t n = uniform(blocks - at < ROW_BLOCKS ? blocks - at : ROW_BLOCKS);
                /* Pair: the copies of the unit, which complete it. */
                count_wait(row_full(u), u->use);
                ROLLED
                for (uint32_t b = 0; b < n; b++) {
                    products_begin();
                    multiply_block(sum, row_buffer(u) + b * ATOM * 2, (at + b) * ATOM * 2, piece,
                                   wide);
                    products_commit();
                    products_wait_but_last();
                    /* To the copier: this wave is through with the unit before. Pair: copy_rows. */
                    count_down(used, b == 0 && used);
                }
                used = row_free(u);
            }
        }
        products_wait();
        count_down(used, 1);
        if (!source->status) fleet_weights_give_back(&source->weights, rounds * wide, SHARES(wave));
    }
}

/* A multiplier's sums of a wide tile to [wide][rows][TILE], in LDS or in memory. */
FLEET_DEVICE void put_many(const float *sum, float *to, uint32_t rows, const uint32_t wide)
{
    const uint32_t lane = fleet_lane(), row = fleet_wave_id() * 16 + lane / 4;
    UNROLLED
    for (uint32_t i = 0; i < wide * TILE_SUMS; i += 2) {
        const uint32_t r = row + i / 2 % 2 * 8;
        float *at = to + (i / TILE_SUMS * rows + r) * TILE + i % TILE_SUMS / 4 * 8 + lane % 4 * 2;
        if (r < rows) put_two(at, sum[i], sum[i + 1]);
    }
}

/* Sums of a wide tile, as workers that share it have left them in memory. */
FLEET_DEVICE float *joint_sums(const op *o, const fleet_ctx *ctx, const many_share *s,
                               uint32_t part, uint32_t round)
{
    const uint32_t wide = o->shape.tile_n / TILE,
                   worker = ctx->slice * o->d.workers + s->group * s->parts + part;
    return o->d.joint + (worker * MOST_TOGETHER + round * wide) * MOST_ROWS * TILE;
}
/* Waits until all workers of the group have left theirs; they all have this task now, or soon. All threads call it,
   behind a barrier. */
FLEET_DEVICE void join_group(const op *o, const fleet_ctx *ctx, const many_share *s,
                             const product_lds *l, uint32_t rows, weight_source *source)
{
    uint32_t *joined = o->joined + ctx->slice * o->d.workers + s->group, want = 0;
    /* Each worker's sums to the others of the group: those of all its waves, which the barrier has ordered before.
       Pair: the load that sees all of them, and the barrier behind it. */
    if (ctx->thread == 0) want = (fleet_add_acq_rel_device(joined, 1) / s->parts + 1) * s->parts;
    if (o->ending != END_RESIDUAL)
        scale_rows_among(o, l, rows, fleet_wave_id(), MOST_WAVES, MOST_SCALED);
    if (ctx->thread == 0) {
        uint32_t tries = 0;
        uint64_t since = 0;
        while ((int32_t)(fleet_load_acquire_device(joined) - want) < 0 && !source->status)
            source->status = fleet_weights_pause(&source->weights, &tries, &since);
    }
    fleet_barrier(ctx);
}
#define PARTS_LOADED 6u /* at a time */
FLEET_DEVICE void add_joint(const fleet_ctx *ctx, const op *o, const many_share *s,
                            const product_lds *l, uint32_t round, uint32_t rows)
{
    const uint32_t wide = o->shape.tile_n / TILE, n = wide * rows * TILE / 4;
    const uint32_t apart = MOST_TOGETHER * MOST_ROWS * TILE;
    const float *from = joint_sums(o, ctx, s, 0, round);
    for (uint32_t i = ctx->thread; i < n; i += ctx->threads) {
        float sum[4] = {0};
        ROLLED
        for (uint32_t first = 0; first < s->parts; first += PARTS_LOADED) {
            fleet_quad part[PARTS_LOADED];
            UNROLLED
            for (uint32_t p = 0; p < PARTS_LOADED; p++) {
                const uint32_t q = first + p < s->parts ? first + p : first;
                part[p] = load_floats(from + q * apart + i * 4);
            }
            UNROLLED
            for (uint32_t p = 0; p < PARTS_LOADED; p++)
                for (uint32_t j = 0; j < 4 && first + p < s->parts; j++)
                    sum[j] += float_of_word(part[p].word[j]);
        }
        UNROLLED
        for (uint32_t j = 0; j < 4; j++) l->sums[i * 4 + j] = sum[j];
    }
}

/* Behind a barrier of all, for the room may have been rows, or another tile's. */
FLEET_DEVICE void fetch_round(const fleet_ctx *ctx, const op *o, const product_lds *l,
                              uint32_t tile, uint32_t rows)
{
    if (o->ending == END_RESIDUAL && rows <= l->ahead_rows)
        fetch_residual(ctx, o, l, tile * o->shape.tile_n, rows);
}
/* When its sums are there. */
FLEET_DEVICE void finish_round(const fleet_ctx *ctx, const op *o, const product_lds *l,
                               uint32_t tile, uint32_t rows, const uint32_t wide)
{
    const uint32_t first = tile * wide, left = o->shape.n / TILE - first;
    copies_wait(); /* those of fetch_residual */
    fleet_barrier(ctx);
    finish(ctx, o, l, first, left < wide ? left : wide, rows);
}

/* All of a worker's tiles; wide is a constant. */
FLEET_DEVICE void multiply_many(const fleet_ctx *ctx, weight_source *source, const op *o,
                                const operand *in, const product_lds *l, const uint32_t wide)
{
    const many_share s = many_share_of(o, ctx);
    const uint32_t wave = uniform(fleet_wave_id()), rows = in->rows;
    row_units units = row_units_of(in, &s, l);
    for (uint32_t tile = s.tile; tile < s.end; tile += s.next) {
        const uint32_t rounds = uniform(rounds_at(&s, tile));
        float sum[MOST_TOGETHER * TILE_SUMS];
        memset(sum, 0, sizeof sum);
        if (wave < MULTIPLIERS) {
            add_many(source, &units, wave, rounds, sum, wide);
        } else if (wave == COPIER) {
            copies_follow();
            copy_rows(&units);
        } else if (wave == SCALER && tile == s.tile) {
            if (s.parts == 1 && o->ending != END_RESIDUAL)
                scale_rows_among(o, l, rows, 0, 1, MOST_SCALED);
        }
        if (s.parts == 1) {
            ROLLED
            for (uint32_t round = 0; round < rounds; round++) {
                fleet_barrier(ctx); /* the sums were rows, or another tile's */
                fetch_round(ctx, o, l, tile + round * s.apart, rows);
                UNROLLED
                for (uint32_t r = 0; r < MOST_TOGETHER / wide; r++)
                    if (r == round && wave < MULTIPLIERS)
                        put_many(sum + r * wide * TILE_SUMS, l->sums, rows, wide);
                finish_round(ctx, o, l, tile + round * s.apart, rows, wide);
            }
        } else {
            UNROLLED
            for (uint32_t r = 0; r < MOST_TOGETHER / wide; r++)
                if (r < rounds && wave < MULTIPLIERS)
                    put_many(sum + r * wide * TILE_SUMS, joint_sums(o, ctx, &s, s.part, r), rows,
                             wide);
            fleet_barrier(ctx);
            if (s.part < rounds) fetch_round(ctx, o, l, tile + s.part, rows);
            join_group(o, ctx, &s, l, rows, source);
            ROLLED
            for (uint32_t round = s.part; round < rounds; round += s.parts) {
                if (round != s.part) {
                    fleet_barrier(ctx); /* the tile before is through */
                    fetch_round(ctx, o, l, tile + round, rows);
                }
                add_joint(ctx, o, &s, l, round, rows);
                finish_round(ctx, o, l, tile + round, rows, wide);
            }
        }
        fleet_barrier(ctx); /* and are rows again */
    }
}

/* `linear`, for kernels whose steps mostly have many rows. */
FLEET_TILE(linear_many, op)
{
    weight_source source = weights_open(&ctx);
    const op *o = own_op(&ctx, &source, args);
    const uint32_t rows = rows_of(o);
    const product_lds l = many_lds_of(&ctx, o->shape.tile_n, rows);
    const operand in = operand_of(o, rows);
    FLEET_UNUSED(at);
    if (rows == 0) return FLEET_OK;
    if (o->ending == END_LOGITS) begin_logits(&ctx, &o->d, &l, rows);
    if (ctx.thread == 0) open_rows(&l);
    fleet_barrier(&ctx);
    pass_over(&source, in.wide);
    if (in.wide == 3)
        multiply_many(&ctx, &source, o, &in, &l, 3);
    else if (in.wide == 2)
        multiply_many(&ctx, &source, o, &in, &l, 2);
    else
        multiply_many(&ctx, &source, o, &in, &l, 1);
    fleet_barrier(&ctx);
    if (ctx.thread == 0) close_rows(&l);
    if (o->ending == END_LOGITS) end_logits(&ctx, &o->d, &l, rows);
    return source.status;
}
#else
FLEET_STREAM(linear_many, op)
{
    linear_stream(ctx, args, at, spans);
}
FLEET_TILE(linear_many, op)
{
    FLEET_UNUSED(at);
    return linear(ctx, args);
}
#endif
