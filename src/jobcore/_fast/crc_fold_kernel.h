/* A folding kernel, once for each time that this file is included. It defines FOLD_NAME(update) and FOLD_NAME(copy).
 *
 * One text for all widths of register on all processors: what is tested on one of them is the algorithm of all. The
 * including file provides functions on one lane, jc_v128_*, and defines
 *
 *   FOLD_NAME(x)         x with the kernel's name in it
 *   FOLD_TARGET          the attribute that lets a function use the kernel's instructions
 *   FOLD_LANES           128-bit lanes in a register: 1, 2 or 4
 *   FOLD_V               the type of a register
 *   FOLD_LOAD(p)
 *   FOLD_STORE(p, v)
 *   FOLD_STREAM(p, v)    a store past the caches; p is a multiple of 64
 *   FOLD_FENCE()         orders those stores before the ones that follow
 *   FOLD_PREFETCH(p)     hint that the cache line at `p`, perhaps beyond the data, will be read soon
 *   FOLD_EVERY(k)        the two constants k in every lane
 *   FOLD_FIRST(raw)      raw in the first 32 bits, zero in the others
 *   FOLD_PLUS(v, w)
 *   FOLD_STEP(v, k, w)   v moved up by the constants k, plus w
 *   FOLD_NARROW(v, fold) all lanes folded into one
 */

#ifndef JOBCORE_FAST_CRC_FOLD_KERNEL_H
#define JOBCORE_FAST_CRC_FOLD_KERNEL_H

/* What becomes of the bytes that were read. Constant in each caller, so that no branch on it is left. */
enum { JC_FOLD_READ, JC_FOLD_COPY, JC_FOLD_STREAM };

/* Enough registers in flight to hide the latency of the multiplication: 5 would do on the worst known processor. */
#define JC_FOLD_EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)

/* Bytes between what is read and what is fetched. */
#define JC_FOLD_AHEAD 2048

#define JC_FOLD_ADVANCE(count)                                                                                      \
    do {                                                                                                            \
        p += (count);                                                                                               \
        n -= (count);                                                                                               \
        if (how != JC_FOLD_READ) {                                                                                  \
            d += (count);                                                                                           \
        }                                                                                                           \
    } while (0)

#endif

#define FOLD_BYTES ((size_t)16 * FOLD_LANES)
#define FOLD_STRIDE (8 * FOLD_BYTES)
/* Where fold->by has the distance of one register; those of 2, 4 and 8 follow. */
#define FOLD_ONE (FOLD_LANES / 2)

/* Reads the register at `p + at`, and writes it to `d + at` if asked to. */
FOLD_TARGET __attribute__((always_inline)) static inline FOLD_V FOLD_NAME(take)(const uint8_t *p, uint8_t *d,
                                                                                size_t at, int how)
{
    FOLD_V v = FOLD_LOAD(p + at);

    if (how == JC_FOLD_COPY) {
        FOLD_STORE(d + at, v);
    } else if (how == JC_FOLD_STREAM) {
        FOLD_STREAM(d + at, v);
    }
    return v;
}

/* Takes and returns raw values. `d` is NULL when only reading, a multiple of 64 when streaming. */
FOLD_TARGET __attribute__((always_inline)) static inline uint32_t FOLD_NAME(run)(const jc_crc_kind *kind,
                                                                                 uint32_t raw, const uint8_t *p,
                                                                                 size_t n, uint8_t *d, int how)
{
    const jc_crc_fold *fold = &kind->fold;
    /* The constants are read before the loops: for all the compiler knows, a copy could overwrite them. */
    const jc_v128 by_lane = jc_v128_load(fold->by[0]);
    const int plain = how == JC_FOLD_READ ? JC_FOLD_READ : JC_FOLD_COPY;
    jc_v128 lane;

    if (n < 16) {
        if (how != JC_FOLD_READ) {
            memcpy(d, p, n);
            p = d;
        }
        return jc_crc_table_raw(kind, raw, p, n);
    }
    if (n < FOLD_BYTES) {
        lane = jc_v128_plus(jc_v128_take(p, d, plain == JC_FOLD_COPY), jc_v128_first(raw));
        JC_FOLD_ADVANCE(16);
    } else {
        const FOLD_V by_one = FOLD_EVERY(fold->by[FOLD_ONE]);
        FOLD_V v;

        if (n < FOLD_STRIDE) {
            v = FOLD_PLUS(FOLD_NAME(take)(p, d, 0, plain), FOLD_FIRST(raw));
            JC_FOLD_ADVANCE(FOLD_BYTES);
        } else {
            const FOLD_V by_two = FOLD_EVERY(fold->by[FOLD_ONE + 1]);
            const FOLD_V by_four = FOLD_EVERY(fold->by[FOLD_ONE + 2]);
            const FOLD_V by_eight = FOLD_EVERY(fold->by[FOLD_ONE + 3]);

#define FOLD_BEGIN(i) FOLD_V v##i = FOLD_NAME(take)(p, d, i * FOLD_BYTES, how);
#define FOLD_GO_ON(i)                                                                                               \
    if (i * FOLD_BYTES % 64 == 0) {                                                                                 \
        FOLD_PREFETCH((uintptr_t)p + i * FOLD_BYTES + JC_FOLD_AHEAD);                                               \
    }                                                                                                               \
    v##i = FOLD_STEP(v##i, by_eight, FOLD_NAME(take)(p, d, i * FOLD_BYTES, how));
            JC_FOLD_EACH(FOLD_BEGIN)
            v0 = FOLD_PLUS(v0, FOLD_FIRST(raw));
            JC_FOLD_ADVANCE(FOLD_STRIDE);
            while (n >= FOLD_STRIDE) {
                JC_FOLD_EACH(FOLD_GO_ON)
                JC_FOLD_ADVANCE(FOLD_STRIDE);
            }
#undef FOLD_BEGIN
#undef FOLD_GO_ON
            v4 = FOLD_STEP(v0, by_four, v4);
            v5 = FOLD_STEP(v1, by_four, v5);
            v6 = FOLD_STEP(v2, by_four, v6);
            v7 = FOLD_STEP(v3, by_four, v7);
            v6 = FOLD_STEP(v4, by_two, v6);
            v7 = FOLD_STEP(v5, by_two, v7);
            v = FOLD_STEP(v6, by_one, v7);
        }
        while (n >= FOLD_BYTES) {
            v = FOLD_STEP(v, by_one, FOLD_NAME(take)(p, d, 0, plain));
            JC_FOLD_ADVANCE(FOLD_BYTES);
        }
        lane = FOLD_NARROW(v, fold);
    }
    while (n >= 16) {
        lane = jc_v128_fold(lane, by_lane, jc_v128_take(p, d, plain == JC_FOLD_COPY));
        JC_FOLD_ADVANCE(16);
    }
    if (n > 0) {
        /* The last 16 bytes, and never one beyond them. Only the n new ones are used: those before were read once
         * already, and may have been changed since. The lane's first n bytes are folded over what follows them. */
        const jc_v128 tail = jc_v128_load(p + n - 16);
        const jc_v128 up = jc_v128_load(fold->shift + n), down = jc_v128_load(fold->shift + 16 + n);

        lane = jc_v128_fold(jc_v128_shuffle(lane, up), by_lane,
                            jc_v128_choose(down, jc_v128_shuffle(lane, down), tail));
        if (how != JC_FOLD_READ) {
            uint8_t bytes[16];

            jc_v128_store(bytes, tail);
            memcpy(d, bytes + 16 - n, n);
        }
    }
    return jc_v128_reduce(lane, fold);
}

FOLD_TARGET static uint32_t FOLD_NAME(update)(const jc_crc_kind *kind, uint32_t crc, const uint8_t *p, size_t n)
{
    return ~FOLD_NAME(run)(kind, ~crc, p, n, NULL, JC_FOLD_READ);
}

FOLD_TARGET static uint32_t FOLD_NAME(copy_plain)(const jc_crc_kind *kind, uint32_t crc, uint8_t *d,
                                                 const uint8_t *p, size_t n)
{
    return ~FOLD_NAME(run)(kind, ~crc, p, n, d, JC_FOLD_COPY);
}

FOLD_TARGET static uint32_t FOLD_NAME(copy)(const jc_crc_kind *kind, uint32_t crc, uint8_t *d, const uint8_t *p,
                                            size_t n)
{
    if (n < JC_CRC_PAST_CACHE_BYTES) {
        return FOLD_NAME(copy_plain)(kind, crc, d, p, n);
    }

    const size_t head = (size_t)(-(uintptr_t)d & 63);

    crc = FOLD_NAME(copy_plain)(kind, crc, d, p, head);
    crc = ~FOLD_NAME(run)(kind, ~crc, p + head, n - head, d + head, JC_FOLD_STREAM);
    FOLD_FENCE();
    return crc;
}

#undef FOLD_BYTES
#undef FOLD_STRIDE
#undef FOLD_ONE
#undef FOLD_NAME
#undef FOLD_TARGET
#undef FOLD_LANES
#undef FOLD_V
#undef FOLD_LOAD
#undef FOLD_STORE
#undef FOLD_STREAM
#undef FOLD_FENCE
#undef FOLD_PREFETCH
#undef FOLD_EVERY
#undef FOLD_FIRST
#undef FOLD_PLUS
#undef FOLD_STEP
#undef FOLD_NARROW
