/* The 128-bit variant of XXH3, with seed 0 and the default secret: a hash for content, 16 bytes at the speed of memory.
 *
 * Source: Collet, "xxHash fast digest algorithm", the specification of the algorithms; the names below follow it.
 * The hash is not cryptographic: equal hashes mean equal contents where nobody works against it.
 *
 * Kernels, in order of preference, best last; jc_hash128_setup() lists those that this machine can run. They do the
 * stripes of inputs of more than 240 bytes, which is all that takes time:
 *
 *   portable  one lane at a time
 *   neon      two lanes in each register; 64-bit ARM
 *   avx2      four lanes in each register; x86-64
 */

#ifndef JOBCORE_FAST_HASH128_H
#define JOBCORE_FAST_HASH128_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    JC_HASH128_LANES = 8,
    JC_HASH128_STRIPE = 64,        /* bytes that go into the lanes at once */
    JC_HASH128_BLOCK_STRIPES = 16, /* stripes after which the lanes are scrambled */
    JC_HASH128_SHORT = 240,        /* up to here there are no stripes */
    JC_HASH128_AHEAD = 1024,       /* bytes between what is read and what is fetched */
    JC_HASH128_MAX_KERNELS = 2
};

#define JC_P32_1 UINT64_C(0x9E3779B1)
#define JC_P32_2 UINT64_C(0x85EBCA77)
#define JC_P32_3 UINT64_C(0xC2B2AE3D)
#define JC_P64_1 UINT64_C(0x9E3779B185EBCA87)
#define JC_P64_2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define JC_P64_3 UINT64_C(0x165667B19E3779F9)
#define JC_P64_4 UINT64_C(0x85EBCA77C2B2AE63)
#define JC_P64_5 UINT64_C(0x27D4EB2F165667C5)
#define JC_PMX_1 UINT64_C(0x165667919E3779F9)
#define JC_PMX_2 UINT64_C(0x9FB21C651E98DF25)

/* The default secret of the specification. */
static const uint8_t jc_hash128_secret[192] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

/* Takes `count` stripes from `p` into the lanes, the first of which is number `at` of its block, below 16. */
typedef void (*jc_hash128_take)(uint64_t lanes[JC_HASH128_LANES], unsigned at, const uint8_t *p, size_t count);

typedef struct {
    const char *name;
    jc_hash128_take take;
} jc_hash128_kernel;

/* Written by jc_hash128_setup() only, at the import of the module that includes this header. */
static struct {
    jc_hash128_kernel kernels[JC_HASH128_MAX_KERNELS];
    size_t count;
} jc_hash128_all;

static inline size_t jc_hash128_count(void)
{
    return jc_hash128_all.count;
}

static inline const jc_hash128_kernel *jc_hash128_at(size_t i)
{
    return &jc_hash128_all.kernels[i];
}

static inline void jc_hash128_add(const char *name, jc_hash128_take take)
{
    jc_hash128_all.kernels[jc_hash128_all.count++] = (jc_hash128_kernel){name, take};
}

/* ---- words ---- */

static inline uint64_t jc_hash128_word(const uint8_t *p)
{
    uint64_t word;

    memcpy(&word, p, sizeof word);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static inline uint32_t jc_hash128_half(const uint8_t *p)
{
    uint32_t half;

    memcpy(&half, p, sizeof half);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    half = __builtin_bswap32(half);
#endif
    return half;
}

/* A word of the secret, and the XOR of two that stand side by side. */
static inline uint64_t jc_secret(size_t at)
{
    return jc_hash128_word(jc_hash128_secret + at);
}

static inline uint64_t jc_secret_pair(size_t at)
{
    return jc_secret(at) ^ jc_secret(at + 8);
}

/* The lower half of a product of 128 bits; the upper half goes to `high`. */
static inline uint64_t jc_hash128_times(uint64_t a, uint64_t b, uint64_t *high)
{
#if defined(__SIZEOF_INT128__)
    const unsigned __int128 product = (unsigned __int128)a * b;

    *high = (uint64_t)(product >> 64);
    return (uint64_t)product;
#else
    const uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    const uint64_t middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (uint32_t)middle;

    *high = a1 * b1 + (middle >> 32) + (other >> 32);
    return a * b;
#endif
}

static inline uint64_t jc_hash128_folded(uint64_t a, uint64_t b)
{
    uint64_t high;
    const uint64_t low = jc_hash128_times(a, b, &high);

    return low ^ high;
}

static inline uint64_t jc_hash128_avalanche(uint64_t x)
{
    x ^= x >> 37;
    x *= JC_PMX_1;
    return x ^ x >> 32;
}

/* The one of XXH64. */
static inline uint64_t jc_hash128_avalanche_64(uint64_t x)
{
    x ^= x >> 33;
    x *= JC_P64_2;
    x ^= x >> 29;
    x *= JC_P64_3;
    return x ^ x >> 32;
}

/* ---- up to 16 bytes ---- */

static inline void jc_hash128_tiny(const uint8_t *p, size_t n, uint64_t *high, uint64_t *low)
{
    uint64_t upper, lower, carried;

    if (n > 8) {
        const uint64_t first = jc_hash128_word(p), last = jc_hash128_word(p + n - 8);
        const uint64_t mixed = jc_secret_pair(48) ^ last;

        lower = jc_hash128_times(jc_secret_pair(32) ^ first ^ last, JC_P64_1, &upper);
        lower += (uint64_t)(n - 1) << 54;
        upper += mixed + (uint32_t)mixed * (JC_P32_2 - 1);
        lower ^= __builtin_bswap64(upper);
        upper *= JC_P64_2;
        lower = jc_hash128_times(lower, JC_P64_2, &carried);
        upper += carried;
        *low = jc_hash128_avalanche(lower);
        *high = jc_hash128_avalanche(upper);
    } else if (n >= 4) {
        const uint64_t both = jc_hash128_half(p) | (uint64_t)jc_hash128_half(p + n - 4) << 32;

        lower = jc_hash128_times(jc_secret_pair(16) ^ both, JC_P64_1 + (n << 2), &upper);
        upper += lower << 1;
        lower ^= upper >> 3;
        lower ^= lower >> 35;
        lower *= JC_PMX_2;
        *low = lower ^ lower >> 28;
        *high = jc_hash128_avalanche(upper);
    } else if (n > 0) {
        const uint32_t all = p[n - 1] | (uint32_t)n << 8 | (uint32_t)p[0] << 16 | (uint32_t)p[n >> 1] << 24;
        const uint32_t turned = __builtin_bswap32(all);
        const uint8_t *secret = jc_hash128_secret;

        lower = (jc_hash128_half(secret) ^ jc_hash128_half(secret + 4)) ^ all;
        upper = (jc_hash128_half(secret + 8) ^ jc_hash128_half(secret + 12)) ^ (turned << 13 | turned >> 19);
        *low = jc_hash128_avalanche_64(lower);
        *high = jc_hash128_avalanche_64(upper);
    } else {
        *low = jc_hash128_avalanche_64(jc_secret_pair(64));
        *high = jc_hash128_avalanche_64(jc_secret_pair(80));
    }
}

/* ---- 17 to 240 bytes ---- */

/* Two pieces of 16 bytes. The specification has the seed here too, which is 0. */
static inline void jc_hash128_mix(uint64_t sums[2], const uint8_t *one, const uint8_t *two, size_t secret)
{
    const uint64_t a = jc_hash128_word(one), b = jc_hash128_word(one + 8);
    const uint64_t c = jc_hash128_word(two), d = jc_hash128_word(two + 8);

    sums[0] += jc_hash128_folded(a ^ jc_secret(secret), b ^ jc_secret(secret + 8));
    sums[1] += jc_hash128_folded(c ^ jc_secret(secret + 16), d ^ jc_secret(secret + 24));
    sums[0] ^= c + d;
    sums[1] ^= a + b;
}

static inline void jc_hash128_medium(const uint8_t *p, size_t n, uint64_t *high, uint64_t *low)
{
    uint64_t sums[2] = {n * JC_P64_1, 0};

    if (n <= 128) {
        /* From the middle outwards: a piece from each end at a time. */
        for (size_t i = (n - 1) / 32 + 1; i-- > 0;) {
            jc_hash128_mix(sums, p + 16 * i, p + n - 16 * i - 16, 32 * i);
        }
    } else {
        for (size_t i = 0; i < 4; i++) {
            jc_hash128_mix(sums, p + 32 * i, p + 32 * i + 16, 32 * i);
        }
        sums[0] = jc_hash128_avalanche(sums[0]);
        sums[1] = jc_hash128_avalanche(sums[1]);
        for (size_t i = 4; i < n / 32; i++) {
            jc_hash128_mix(sums, p + 32 * i, p + 32 * i + 16, 32 * (i - 4) + 3);
        }
        jc_hash128_mix(sums, p + n - 16, p + n - 32, 103);
    }
    *low = jc_hash128_avalanche(sums[0] + sums[1]);
    *high = 0 - jc_hash128_avalanche(sums[0] * JC_P64_1 + sums[1] * JC_P64_4 + n * JC_P64_2);
}

/* ---- more ---- */

static inline void jc_hash128_accumulate(uint64_t lanes[JC_HASH128_LANES], const uint8_t *p, const uint8_t *secret)
{
    for (int i = 0; i < JC_HASH128_LANES; i++) {
        const uint64_t data = jc_hash128_word(p + 8 * i), keyed = data ^ jc_hash128_word(secret + 8 * i);

        lanes[i ^ 1] += data;
        lanes[i] += (uint64_t)(uint32_t)keyed * (keyed >> 32);
    }
}

static void jc_hash128_portable_take(uint64_t lanes[JC_HASH128_LANES], unsigned at, const uint8_t *p, size_t count)
{
    for (; count > 0; count--, p += JC_HASH128_STRIPE) {
        jc_hash128_accumulate(lanes, p, jc_hash128_secret + 8 * at);
        if (++at == JC_HASH128_BLOCK_STRIPES) {
            at = 0;
            for (int i = 0; i < JC_HASH128_LANES; i++) {
                lanes[i] = (lanes[i] ^ lanes[i] >> 47 ^ jc_secret(128 + 8 * (size_t)i)) * JC_P32_1;
            }
        }
    }
}

#if defined(__x86_64__)
#include "hash128_x86.h"
#elif defined(__aarch64__) && defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#include "hash128_arm.h"
#else
static inline void jc_hash128_add_native(void) {}
#endif

static inline uint64_t jc_hash128_merge(const uint64_t lanes[JC_HASH128_LANES], uint64_t sum, size_t secret)
{
    for (size_t i = 0; i < JC_HASH128_LANES; i += 2) {
        sum += jc_hash128_folded(lanes[i] ^ jc_secret(secret + 8 * i), lanes[i + 1] ^ jc_secret(secret + 8 * i + 8));
    }
    return jc_hash128_avalanche(sum);
}

/* The bytes `from` to `from + count` of the data and the zeros after it. */
static inline void jc_hash128_piece(uint8_t *to, const uint8_t *p, size_t n, uint64_t from, size_t count)
{
    const size_t real = from >= n ? 0 : n - (size_t)from < count ? n - (size_t)from : count;

    if (real > 0) {
        memcpy(to, p + from, real);
    }
    memset(to + real, 0, count - real);
}

/* The last 64 bytes of `total`, and the sum of all. */
static inline void jc_hash128_finish(uint64_t lanes[JC_HASH128_LANES], const uint8_t last[JC_HASH128_STRIPE],
                                     uint64_t total, uint64_t *high, uint64_t *low)
{
    jc_hash128_accumulate(lanes, last, jc_hash128_secret + 121);
    *low = jc_hash128_merge(lanes, total * JC_P64_1, 11);
    *high = jc_hash128_merge(lanes, ~(total * JC_P64_2), 117);
}

static inline void jc_hash128_long(jc_hash128_take take, const uint8_t *p, size_t n, uint64_t zeros, uint64_t *high,
                                   uint64_t *low)
{
    uint64_t lanes[JC_HASH128_LANES] = {JC_P32_3, JC_P64_1, JC_P64_2, JC_P64_3,
                                        JC_P64_4, JC_P32_2, JC_P64_5, JC_P32_1};
    const uint64_t total = n + zeros;
    /* The last stripe, full or not, is replaced by the last 64 bytes. */
    const uint64_t stripes = (total - 1) / JC_HASH128_STRIPE;
    const uint64_t whole = n / JC_HASH128_STRIPE < stripes ? n / JC_HASH128_STRIPE : stripes;
    uint8_t last[JC_HASH128_STRIPE];

    take(lanes, 0, p, (size_t)whole);
    if (whole < stripes) {
        static const uint8_t nothing[JC_HASH128_STRIPE * JC_HASH128_BLOCK_STRIPES];
        unsigned at = (unsigned)(whole % JC_HASH128_BLOCK_STRIPES);
        uint64_t left = stripes - whole - 1;

        /* One stripe has the rest of the data and the first zeros. */
        jc_hash128_piece(last, p, n, whole * JC_HASH128_STRIPE, JC_HASH128_STRIPE);
        take(lanes, at, last, 1);
        at = (at + 1) % JC_HASH128_BLOCK_STRIPES;
        while (left > 0) {
            const unsigned room = JC_HASH128_BLOCK_STRIPES - at;
            const unsigned step = left < room ? (unsigned)left : room;

            take(lanes, at, nothing, step);
            at = 0;
            left -= step;
        }
    }
    jc_hash128_piece(last, p, n, total - JC_HASH128_STRIPE, JC_HASH128_STRIPE);
    jc_hash128_finish(lanes, last, total, high, low);
}

/* ---- a long content in pieces ---- */

typedef struct {
    jc_hash128_take take;
    uint64_t lanes[JC_HASH128_LANES];
    uint64_t total, done;
    uint8_t last[JC_HASH128_STRIPE]; /* the last bytes so far */
} jc_hash128_stream;

/* Begin the hash of `total` bytes, more than JC_HASH128_SHORT. */
static inline void jc_hash128_begin(jc_hash128_stream *s, jc_hash128_take take, uint64_t total)
{
    *s = (jc_hash128_stream){.take = take,
                             .lanes = {JC_P32_3, JC_P64_1, JC_P64_2, JC_P64_3, JC_P64_4, JC_P32_2, JC_P64_5, JC_P32_1},
                             .total = total};
}

/* Add the next `n` bytes; only of the last piece may that be no multiple of JC_HASH128_STRIPE. */
static inline void jc_hash128_more(jc_hash128_stream *s, const uint8_t *p, size_t n)
{
    const uint64_t left = (s->total - 1) / JC_HASH128_STRIPE - s->done / JC_HASH128_STRIPE;
    const size_t whole = n / JC_HASH128_STRIPE;

    s->take(s->lanes, (unsigned)(s->done / JC_HASH128_STRIPE % JC_HASH128_BLOCK_STRIPES), p,
            whole < left ? whole : (size_t)left);
    if (n >= JC_HASH128_STRIPE) {
        memcpy(s->last, p + n - JC_HASH128_STRIPE, JC_HASH128_STRIPE);
    } else {
        memmove(s->last, s->last + n, JC_HASH128_STRIPE - n);
        memcpy(s->last + JC_HASH128_STRIPE - n, p, n);
    }
    s->done += n;
}

/* Give the hash once all bytes were added. */
static inline void jc_hash128_end(jc_hash128_stream *s, uint64_t *high, uint64_t *low)
{
    jc_hash128_finish(s->lanes, s->last, s->total, high, low);
}

/* ---- all ---- */

/* The hash of `n` bytes and as many zero bytes after them as `zeros` says, in one pass over the data. */
static inline void jc_hash128_by(jc_hash128_take take, const void *data, size_t n, uint64_t zeros, uint64_t *high,
                                 uint64_t *low)
{
    const uint8_t *p = (const uint8_t *)data;
    uint8_t padded[JC_HASH128_SHORT];

    if (n > JC_HASH128_SHORT || zeros > JC_HASH128_SHORT - n) {
        jc_hash128_long(take, p, n, zeros, high, low);
        return;
    }
    if (zeros > 0) {
        jc_hash128_piece(padded, p, n, 0, n + (size_t)zeros);
        p = padded;
        n += (size_t)zeros;
    }
    if (n <= 16) {
        jc_hash128_tiny(p, n, high, low);
    } else {
        jc_hash128_medium(p, n, high, low);
    }
}

static inline void jc_hash128_padded(const void *data, size_t n, uint64_t zeros, uint64_t *high, uint64_t *low)
{
    jc_hash128_by(jc_hash128_at(jc_hash128_count() - 1)->take, data, n, zeros, high, low);
}

static inline void jc_hash128(const void *data, size_t n, uint64_t *high, uint64_t *low)
{
    jc_hash128_padded(data, n, 0, high, low);
}

/* Finds out what the machine can do. Called again, it does nothing: kernels may be running. */
static void jc_hash128_setup(void)
{
    if (jc_hash128_all.count > 0) {
        return;
    }
    jc_hash128_add("portable", jc_hash128_portable_take);
    jc_hash128_add_native();
}

#endif
