/* Folding by carry-less multiplication: one kernel for each time that this file is included.
 *
 * Source of the method: Gopal, Ozturk, Guilford, Wolrich, Feghali, Dixon, Karakoyunlu, "Fast CRC Computation for
 * Generic Polynomials Using PCLMULQDQ Instruction", Intel white paper 323102, December 2009. Here reflected, with
 * any width of register, and with the constants computed by jc_fold_setup().
 *
 * The method. A register holds 128 bits of a message as the polynomial R: bit i is the coefficient of x^(127 - i),
 * so its low half L, which came first, counts x^64 times. Moving it up past D more bits is R * x^D, and modulo P
 *
 *     R * x^D = L * (x^(D + 64) mod P) + H * (x^D mod P)
 *
 * which is two products of at most 95 bits: they fit the register and are added to what stands D bits further on.
 * The instruction multiplies reflected halves to a result that is one power short of its place, hence x^(D + 63)
 * and x^(D - 1) below. Registers side by side, and the lanes in one, are folded alike with D the distance apart.
 *
 * The including file defines, beside the functions on jc_v128 named below:
 *   FOLD_KERNEL(x)       x with the kernel's name in it
 *   FOLD_TARGET          attribute that lets the function use the kernel's instructions
 *   FOLD_V, FOLD_LANES   register type and the number of 128-bit lanes in it: 1, 2 or 4
 *   FOLD_LOAD(p), FOLD_STORE(p, v), FOLD_STREAM(p, v)    the last past the caches, p a multiple of 64
 *   FOLD_CONSTANTS(k)    the pair of constants k in every lane
 *   FOLD_FIRST(raw)      raw in the first 32 bits, zero elsewhere
 *   FOLD_STEP(v, k, w)   v folded by the constants k, plus w
 *   FOLD_NARROW(v)       all lanes folded into one, a jc_v128
 *   FOLD_FENCE()         orders streaming stores before the stores that follow
 */

#ifndef JOBCORE_FAST_CRC32_FOLD_H
#define JOBCORE_FAST_CRC32_FOLD_H

/* What run() does with the bytes that it has read: a constant in each of its callers, so no branch is left. */
enum { JC_FOLD_READ, JC_FOLD_COPY, JC_FOLD_STREAM };

enum { JC_FOLD_DISTANCES = 6 };

static struct {
    /* Multipliers of L and H for the distances of 16, 32, ... 512 bytes. */
    uint64_t by[JC_FOLD_DISTANCES][2];
    /* For the last 128 bits: multiplier of L, (unused), quotient of x^96 by P without its last bit, P. */
    uint64_t last[4];
    /* Read at 16 + s it moves bytes down by s, at 16 - s up; places that nothing moves to have their top bit set. */
    uint8_t shift[48];
} jc_fold;

/* x^n mod P as a multiplier of halves: bit i of 64 is the coefficient of x^(63 - i). */
static inline uint64_t jc_fold_multiplier(uint64_t n)
{
    return (uint64_t)jc_crc32_power(n, 0) << 32;
}

static inline void jc_fold_setup(void)
{
    for (int i = 0; i < JC_FOLD_DISTANCES; i++) {
        uint64_t bits = (uint64_t)128 << i;

        jc_fold.by[i][0] = jc_fold_multiplier(bits + 63);
        jc_fold.by[i][1] = jc_fold_multiplier(bits - 1);
    }

    /* Long division of x^96 by P. Its first step leaves x^32 mod P and the coefficient of x^64. */
    uint64_t quotient = 1;
    uint32_t rest = JC_CRC32_POLYNOMIAL;

    for (int i = 1; i < 64; i++) {
        uint64_t top = rest & 1;

        rest = (rest >> 1) ^ (JC_CRC32_POLYNOMIAL & (0 - (uint32_t)top));
        quotient |= top << i;
    }
    jc_fold.last[0] = jc_fold_multiplier(95);
    jc_fold.last[1] = 0;
    jc_fold.last[2] = quotient;
    jc_fold.last[3] = (uint64_t)JC_CRC32_POLYNOMIAL << 1 | 1;

    for (int i = 0; i < 48; i++) {
        jc_fold.shift[i] = i >= 16 && i < 32 ? (uint8_t)(i - 16) : 0x80;
    }
}

/* The register of 16 bytes `v` and the `n` bytes behind it, 1 to 15, which end the register `ahead`: the first n
 * bytes of v are folded over the rest. */
#define JC_FOLD_TAIL(v, n, ahead)                                                                                   \
    jc_v128_fold(jc_v128_shuffle(v, jc_v128_load(jc_fold.shift + (n))), jc_v128_load(jc_fold.by[0]),                \
                 jc_v128_choose(jc_v128_load(jc_fold.shift + 16 + (n)),                                             \
                                jc_v128_shuffle(v, jc_v128_load(jc_fold.shift + 16 + (n))), ahead))

#define JC_FOLD_EACH8(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)

#endif

#define FOLD_BYTES ((size_t)16 * FOLD_LANES)
/* Index of the distance of `n` registers, a power of two, in jc_fold.by. */
#define FOLD_DISTANCE(n) ((FOLD_LANES == 4 ? 2 : FOLD_LANES - 1) + ((n) == 8 ? 3 : (n) / 2))

/* The register `at` bytes on, copied if asked for. */
FOLD_TARGET static inline FOLD_V FOLD_KERNEL(take)(const uint8_t *p, uint8_t *d, size_t at, int how)
{
    FOLD_V v = FOLD_LOAD(p + at);

    if (how == JC_FOLD_COPY) {
        FOLD_STORE(d + at, v);
    } else if (how == JC_FOLD_STREAM) {
        FOLD_STREAM(d + at, v);
    }
    return v;
}

/* `d` is NULL when only reading; when streaming, a multiple of 64. */
FOLD_TARGET static inline uint32_t FOLD_KERNEL(run)(uint32_t crc, const uint8_t *p, size_t n, uint8_t *d, int how)
{
    const int plain = how == JC_FOLD_READ ? JC_FOLD_READ : JC_FOLD_COPY;
    jc_v128 last;

    if (n < 16) {
        if (how != JC_FOLD_READ) {
            memcpy(d, p, n);
            p = d;
        }
        return ~jc_crc32_table_raw(~crc, p, n);
    }

#define FOLD_SKIP(count)                                                                                            \
    do {                                                                                                            \
        p += (count);                                                                                               \
        n -= (count);                                                                                               \
        if (how != JC_FOLD_READ) {                                                                                  \
            d += (count);                                                                                           \
        }                                                                                                           \
    } while (0)

    if (n < FOLD_BYTES) {
        last = jc_v128_plus(jc_v128_take(p, d, how != JC_FOLD_READ), jc_v128_first(~crc));
        FOLD_SKIP(16);
    } else {
        FOLD_V v;

        if (n >= 8 * FOLD_BYTES) {
            FOLD_V k = FOLD_CONSTANTS(jc_fold.by[FOLD_DISTANCE(8)]);
#define FOLD_BEGIN(i) FOLD_V v##i = FOLD_KERNEL(take)(p, d, i * FOLD_BYTES, how);
#define FOLD_GO_ON(i) v##i = FOLD_STEP(v##i, k, FOLD_KERNEL(take)(p, d, i * FOLD_BYTES, how));
            JC_FOLD_EACH8(FOLD_BEGIN)
            v0 = FOLD_PLUS(v0, FOLD_FIRST(~crc));
            FOLD_SKIP(8 * FOLD_BYTES);
            while (n >= 8 * FOLD_BYTES) {
                JC_FOLD_EACH8(FOLD_GO_ON)
                FOLD_SKIP(8 * FOLD_BYTES);
            }
#undef FOLD_BEGIN
#undef FOLD_GO_ON
            k = FOLD_CONSTANTS(jc_fold.by[FOLD_DISTANCE(4)]);
            v4 = FOLD_STEP(v0, k, v4);
            v5 = FOLD_STEP(v1, k, v5);
            v6 = FOLD_STEP(v2, k, v6);
            v7 = FOLD_STEP(v3, k, v7);
            k = FOLD_CONSTANTS(jc_fold.by[FOLD_DISTANCE(2)]);
            v6 = FOLD_STEP(v4, k, v6);
            v7 = FOLD_STEP(v5, k, v7);
            k = FOLD_CONSTANTS(jc_fold.by[FOLD_DISTANCE(1)]);
            v = FOLD_STEP(v6, k, v7);
        } else {
            v = FOLD_PLUS(FOLD_KERNEL(take)(p, d, 0, plain), FOLD_FIRST(~crc));
            FOLD_SKIP(FOLD_BYTES);
        }
        while (n >= FOLD_BYTES) {
            v = FOLD_STEP(v, FOLD_CONSTANTS(jc_fold.by[FOLD_DISTANCE(1)]), FOLD_KERNEL(take)(p, d, 0, plain));
            FOLD_SKIP(FOLD_BYTES);
        }
        last = FOLD_NARROW(v);
    }

    while (n >= 16) {
        last = jc_v128_fold(last, jc_v128_load(jc_fold.by[0]), jc_v128_take(p, d, how != JC_FOLD_READ));
        FOLD_SKIP(16);
    }
    if (n > 0) {
        /* Reads backwards into bytes that came before, never beyond the end; of those only the new ones are used. */
        jc_v128 ahead = jc_v128_load(p + n - 16);

        last = JC_FOLD_TAIL(last, n, ahead);
        if (how != JC_FOLD_READ) {
            uint8_t bytes[16];

            jc_v128_store(bytes, ahead);
            memcpy(d, bytes + 16 - n, n);
        }
    }
#undef FOLD_SKIP
    return ~jc_v128_reduce(last);
}

FOLD_TARGET static uint32_t FOLD_KERNEL(update)(uint32_t crc, const uint8_t *p, size_t n)
{
    return FOLD_KERNEL(run)(crc, p, n, NULL, JC_FOLD_READ);
}

FOLD_TARGET static uint32_t FOLD_KERNEL(copy_plain)(uint32_t crc, uint8_t *d, const uint8_t *p, size_t n)
{
    return FOLD_KERNEL(run)(crc, p, n, d, JC_FOLD_COPY);
}

FOLD_TARGET static uint32_t FOLD_KERNEL(copy)(uint32_t crc, uint8_t *d, const uint8_t *p, size_t n)
{
    if (n < JC_CRC32_STREAM_BYTES) {
        return FOLD_KERNEL(copy_plain)(crc, d, p, n);
    }

    size_t head = (size_t)(-(uintptr_t)d & 63);

    crc = FOLD_KERNEL(copy_plain)(crc, d, p, head);
    crc = FOLD_KERNEL(run)(crc, p + head, n - head, d + head, JC_FOLD_STREAM);
    FOLD_FENCE();
    return crc;
}

#undef FOLD_BYTES
#undef FOLD_DISTANCE
