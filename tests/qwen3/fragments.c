/* The layouts of examples/qwen3 for tensor cores, lane by lane on the CPU: where a weight is
   packed, what each lane loads, and where it stores its sums, compared with the fragments of
   mma.m16n8k16 in the PTX ISA. */
// run: asan whole
#include "test.h"

#include "examples/qwen3/nvidia/kv_block.h"
#include "mma.h"

#define BLOCKS 3u
#define WORDS (STAGE_K * TILE_N) /* of a stage */
#define BANKS 32u

typedef struct lane_registers {
    uint32_t a[4], b[2];
    float sum[FRAGMENT_SUMS];
} lane_registers;

static float value_of(uint32_t half)
{
    return float_of_bf16(half);
}
static void multiply_lanes(lane_registers *lanes)
{
    lane_elements elements[LANES];
    for (uint32_t lane = 0; lane < LANES; lane++)
        elements[lane] = lane_elements_of(lanes[lane].a, lanes[lane].b, value_of);
    for (uint32_t lane = 0; lane < LANES; lane++) mma(lanes[lane].sum, elements, lane);
}

/* Small whole numbers, which bf16 and their products' sums hold exactly. */
static float number(uint32_t i)
{
    return (float)(i * 2654435761u >> 24) - 128;
}

static void each_weight_has_its_place(test_run *t)
{
    uint32_t taken[WORDS] = {0};
    for (uint32_t column = 0; column < TILE_N; column++)
        for (uint32_t k = 0; k < STAGE_K; k++) {
            const uint32_t at = k / BLOCK_K * ATOM + pack_at(column, k, STAGE_K);
            CHECK(at < WORDS);
            CHECK_INT(taken[at]++, 0);
        }
}

static void products_come_out(test_run *t)
{
    static bf16 weights[WORDS], rows[FRAGMENT_ROWS * BLOCKS * BLOCK_K];
    static lane_registers lanes[LANES];
    float sums[FRAGMENT_ROWS * TILE_N];
    memset(lanes, 0, sizeof lanes);
    for (uint32_t k = 0; k < BLOCKS * BLOCK_K; k++) {
        for (uint32_t c = 0; c < TILE_N; c++)
            weights[k / BLOCK_K * ATOM + pack_at(c, k, STAGE_K)] =
                bf16_of_float(number(c * BLOCKS * BLOCK_K + k));
        for (uint32_t r = 0; r < FRAGMENT_ROWS; r++)
            rows[act_at(r, k, BLOCKS * BLOCK_K)] =
                bf16_of_float(number(7919 + r * BLOCKS * BLOCK_K + k));
    }
    for (uint32_t block = 0; block < BLOCKS; block++)
        for (uint32_t half = 0; half < 2; half++) {
            for (uint32_t lane = 0; lane < LANES; lane++) {
                uint32_t row[4], column[2][4]; /* 16 bytes each, as the lane loads them */
                memcpy(row,
                       rows + act_at(fragment_row(lane), block * BLOCK_K + fragment_k(lane),
                                     BLOCKS * BLOCK_K),
                       sizeof row);
                for (uint32_t i = 0; i < 2; i++)
                    memcpy(column[i], weights + block * ATOM + i * STAGE_HALF + fragment_at(lane),
                           sizeof column[i]);
                fragment_weights(lanes[lane].a, column[0], column[1], half);
                memcpy(lanes[lane].b, row + 2 * half, sizeof lanes[lane].b);
            }
            multiply_lanes(lanes);
        }
    for (uint32_t i = 0; i < FRAGMENT_ROWS * TILE_N; i++)
        sums[i] = 0.5f; /* not the sum of any product */
    for (uint32_t lane = 0; lane < LANES; lane++)
        for (uint32_t i = 0; i < FRAGMENT_SUMS; i++) {
            const uint32_t turn = fragment_sum_turn(lane, i);
            CHECK(turn < FRAGMENT_SUMS && fragment_sum_at(lane, turn) < FRAGMENT_ROWS * TILE_N);
            sums[fragment_sum_at(lane, turn)] = lanes[lane].sum[turn];
        }
    for (uint32_t r = 0; r < FRAGMENT_ROWS; r++)
        for (uint32_t c = 0; c < TILE_N; c++) {
            double want = 0;
            for (uint32_t k = 0; k < BLOCKS * BLOCK_K; k++)
                want += (double)number(7919 + r * BLOCKS * BLOCK_K + k) *
                        (double)number(c * BLOCKS * BLOCK_K + k);
            CHECK_INT(sums[r * TILE_N + c] * 2, want * 2);
        }
}

/* Counts an access in its banks; 0: a bank is taken. */
static int finds_free_banks(uint32_t *used, uint32_t at_bytes, uint32_t bytes)
{
    for (uint32_t b = at_bytes / 4; b < (at_bytes + bytes) / 4; b++)
        if (used[b % BANKS]++) return 0;
    return 1;
}

/* Eight lanes at a time load 16 bytes each. */
static void weights_are_in_different_banks(test_run *t)
{
    for (uint32_t first = 0; first < LANES; first += 8) {
        uint32_t used[BANKS] = {0};
        for (uint32_t lane = first; lane < first + 8; lane++) {
            const uint32_t at = fragment_at(lane) * 2;
            CHECK_INT(at % 16, 0);
            CHECK(finds_free_banks(used, at, 16));
        }
    }
}

/* All lanes store four bytes each. */
static void sums_are_in_different_banks(test_run *t)
{
    for (uint32_t i = 0; i < FRAGMENT_SUMS; i++) {
        uint32_t used[BANKS] = {0};
        for (uint32_t lane = 0; lane < LANES; lane++)
            CHECK(finds_free_banks(used, fragment_sum_at(lane, fragment_sum_turn(lane, i)) * 4, 4));
    }
}

/* An appended row fills whole sectors of memory, without values of other rows. */
static void rows_of_a_kv_block_are_whole(test_run *t)
{
    uint32_t seen[KV_BLOCK_VALUES] = {0}, row_of_sector[KV_BLOCK_VALUES * 2 / 32];
    memset(row_of_sector, 0xff, sizeof row_of_sector);
    for (uint32_t key = 0; key < KV_BLOCK; key++)
        for (uint32_t i = 0; i < 2 * MAX_HEAD_DIM; i++) {
            const uint32_t is_value = i / MAX_HEAD_DIM, n = i % MAX_HEAD_DIM;
            const uint32_t at =
                (uint32_t)(is_value ? value_at(NULL, key, n) : key_at(NULL, key, n));
            uint32_t *row = &row_of_sector[at * 2 / 32];
            CHECK_INT(seen[at]++, 0);
            CHECK_INT(at / VECTOR * VECTOR + n % VECTOR, at); /* eight neighbours are together */
            if (*row == UINT32_MAX) *row = 2 * key + is_value;
            CHECK_INT(*row, 2 * key + is_value);
        }
}

/* Eight lanes at a time load a vector each: of keys of two rows, of values of four. */
static void vectors_of_a_kv_block_are_in_different_banks(test_run *t)
{
    for (uint32_t first = 0; first < LANES; first += 8)
        for (uint32_t n = 0; n < 8; n++) {
            uint32_t keys[BANKS] = {0}, values[BANKS] = {0};
            for (uint32_t lane = first; lane < first + 8; lane++) {
                const uint32_t g = lane / 4, t4 = lane % 4;
                const uint32_t key = key_at(NULL, g + n % 2 * 8, (n / 2 * 4 + t4) * VECTOR);
                const uint32_t value =
                    value_at(NULL, t4 * 2 + n % 2 + n / 2 % 2 * 8, (g + n / 4 * 8) * VECTOR);
                CHECK(finds_free_banks(keys, key * 2, 16));
                CHECK(finds_free_banks(values, value * 2, 16));
            }
        }
}

/* Multiplication m uses values 8g + m and those half a head further, of the keys that stand for the
   lane's k's. */
static void values_come_out(test_run *t)
{
    uint16_t unit[KV_BLOCK_VALUES];
    for (uint32_t key = 0; key < KV_BLOCK; key++)
        for (uint32_t i = 0; i < MAX_HEAD_DIM; i++)
            unit[value_at(NULL, key, i)] = (uint16_t)(key * MAX_HEAD_DIM + i);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        const uint32_t g = lane / 4, first = lane % 4 * 2;
        fleet_quad value[8];
        for (uint32_t n = 0; n < 8; n++)
            memcpy(&value[n],
                   unit + value_at(NULL, first + n / 2 % 2 + n / 4 * 8,
                                   (g + n % 2 * (HEAD_VECTORS / 2)) * VECTOR),
                   16);
        for (uint32_t m = 0; m < VECTOR; m++) {
            uint32_t a[4];
            fragment_values(a, value, m);
            for (uint32_t i = 0; i < 8; i++) {
                const uint32_t key = first + i % 2 + i / 4 * 8;
                const uint32_t at = i / 2 % 2 * (MAX_HEAD_DIM / 2) + g * VECTOR + m;
                CHECK_INT(a[i / 2] >> i % 2 * 16 & 0xffffu, key * MAX_HEAD_DIM + at);
            }
        }
    }
}

/* NaN of either sign and with any payload, as NVIDIA's (0x7fffffff) and AMD's (0x7fc00000) arithmetic leaves it. */
static void nan_stays_nan(test_run *t)
{
    static const uint32_t payloads[] = {1, 0x8000, 0x400000, 0x7f8000, 0x7fffff};
    for (uint32_t i = 0; i < 2 * sizeof payloads / sizeof payloads[0]; i++) {
        const uint32_t bits = i % 2 << 31 | 0x7f800000u | payloads[i / 2];
        float nan;
        memcpy(&nan, &bits, sizeof nan);
        CHECK(isnan(value_of(bf16_of_float(nan))));
    }
    CHECK(isinf(value_of(bf16_of_float(INFINITY))));
}

static void list(test_run *t)
{
    TEST(nan_stays_nan);
    TEST(each_weight_has_its_place);
    TEST(products_come_out);
    TEST(weights_are_in_different_banks);
    TEST(sums_are_in_different_banks);
    TEST(rows_of_a_kv_block_are_whole);
    TEST(vectors_of_a_kv_block_are_in_different_banks);
    TEST(values_come_out);
}

TEST_MAIN(list)
