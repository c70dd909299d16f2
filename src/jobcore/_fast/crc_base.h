/* Cyclic redundancy checks of 32 bits, reflected, with all ones as start and as final XOR, for any polynomial.
 *
 * crc32.h and crc32c.h make one checksum each of what is here: a `jc_crc_kind` holds the polynomial with all that
 * follows from it, and the kernels read their constants there, so that one text serves both.
 *
 * Kernels, in order of preference, best last; jc_crc_setup() lists those that this machine can run:
 *
 *   table           portable: 16 bytes a step through 16 tables
 *   armv8-crc32     the CRC-32 instructions of ARMv8, three streams at a time
 *   armv8-crc32c    those for CRC-32C
 *   armv8-pmull     folding by carry-less multiplication, 128-bit registers
 *   pclmulqdq       the same on x86-64
 *   vpclmulqdq-256  the same, two lanes in each AVX2 register
 *   vpclmulqdq-512  the same, four lanes in each AVX-512 register
 *
 * Everything here is derived from the polynomial when jc_crc_setup() runs: no table or constant is written down.
 *
 * Conventions. A polynomial over GF(2) of degree below 32 is held "reflected": bit i of the word is the
 * coefficient of x^(31 - i), so that the first bit of the data, the lowest of its byte, has the highest power.
 * "Raw" means without the two inversions: the raw value of a message M is M * x^32 mod P.
 */

#ifndef JOBCORE_FAST_CRC_BASE_H
#define JOBCORE_FAST_CRC_BASE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define JC_CRC_ONE UINT32_C(0x80000000) /* x^0, reflected */

/* From here on a copy goes past the caches: into an arena larger than they are that is 1.3 to 1.6 times as fast, since
 * no line is fetched to be overwritten. A copy that fits the first-level cache is likely to be read again soon. */
#ifndef JC_CRC_PAST_CACHE_BYTES
#define JC_CRC_PAST_CACHE_BYTES ((size_t)32 << 10)
#endif
/* A kernel that cannot copy by itself copies this much and reads it back from the first-level cache: three streams of
 * crc_streams.h. */
#define JC_CRC_BLOCK_BYTES ((size_t)12 << 10)

enum { JC_CRC_MAX_KERNELS = 4, JC_FOLD_DISTANCES = 6 };

typedef struct jc_crc_kind jc_crc_kind;

typedef uint32_t (*jc_crc_update_function)(const jc_crc_kind *kind, uint32_t crc, const uint8_t *data, size_t n);
typedef uint32_t (*jc_crc_copy_function)(const jc_crc_kind *kind, uint32_t crc, uint8_t *dst, const uint8_t *src,
                                         size_t n);

typedef struct {
    const char *name;
    jc_crc_update_function update;
    /* The checksum is that of the bytes written to `dst`, even if another thread changes `src` meanwhile: each
     * byte is read from `src` once. */
    jc_crc_copy_function copy;
} jc_crc_kernel;

/* The constants of crc_fold.h. */
typedef struct {
    /* Multipliers of L and H for the distances of 16, 32, ... 512 bytes. */
    uint64_t by[JC_FOLD_DISTANCES][2];
    /* For the last 128 bits: the multiplier of L, and nothing for H. */
    uint64_t last[2];
    /* x^96 divided by P, less its last bit; P. */
    uint64_t divide[2];
    /* For a byte shuffle. Read at 16 + s it moves bytes down by s, read at 16 - s up by s; the other bytes have the
     * top bit set. */
    uint8_t shift[48];
} jc_crc_fold;

/* Written by jc_crc_setup() only, before any other thread can be here: at the import of each module that has one. */
struct jc_crc_kind {
    uint32_t polynomial; /* P without its x^32, reflected */
    uint32_t table[16][256];
    /* x^(2^i) mod P */
    uint32_t power[68];
    jc_crc_fold fold;
    jc_crc_kernel kernels[JC_CRC_MAX_KERNELS];
    size_t count;
};

/* ---- arithmetic modulo P ---- */

/* a * b mod P, by shift and add; no branch depends on the data. */
static inline uint32_t jc_crc_times(const jc_crc_kind *kind, uint32_t a, uint32_t b)
{
    uint32_t product = 0;

    for (int i = 31; i >= 0; i--) {
        product ^= b & (0 - (a >> i & 1));
        b = (b >> 1) ^ (kind->polynomial & (0 - (b & 1)));
    }
    return product;
}

/* x^(n * 2^shift) mod P, for a shift of at most 4. */
static inline uint32_t jc_crc_power(const jc_crc_kind *kind, uint64_t n, unsigned shift)
{
    uint32_t result = JC_CRC_ONE;

    for (unsigned i = shift; n != 0; i++, n >>= 1) {
        if (n & 1) {
            result = jc_crc_times(kind, result, kind->power[i]);
        }
    }
    return result;
}

/* The checksum of two messages joined, from those of the parts: the first one moves up by the 8 * n powers that the
 * second takes. The inversions of both cancel out. */
static inline uint32_t jc_crc_join(const jc_crc_kind *kind, uint32_t first, uint32_t second,
                                   uint64_t second_bytes)
{
    return jc_crc_times(kind, first, jc_crc_power(kind, second_bytes, 3)) ^ second;
}

/* ---- the portable kernel ---- */

static inline uint32_t jc_crc_word(const uint8_t *p)
{
    uint32_t word;

    memcpy(&word, p, sizeof word);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap32(word);
#endif
    return word;
}

/* The share of four bytes that have `after` more bytes behind them in this step. */
static inline uint32_t jc_crc_four(const jc_crc_kind *kind, uint32_t word, int after)
{
    const uint32_t(*table)[256] = kind->table + after;

    return table[3][word & 255] ^ table[2][word >> 8 & 255] ^ table[1][word >> 16 & 255] ^ table[0][word >> 24];
}

/* Slicing: Kounavis and Berry, "A systematic approach to building high performance software-based CRC generators",
 * ISCC 2005; there by 8, here by 16. Takes and returns raw values. */
static inline uint32_t jc_crc_table_raw(const jc_crc_kind *kind, uint32_t raw, const uint8_t *p, size_t n)
{
    for (; n >= 16; n -= 16, p += 16) {
        raw = jc_crc_four(kind, jc_crc_word(p) ^ raw, 12) ^ jc_crc_four(kind, jc_crc_word(p + 4), 8) ^
              jc_crc_four(kind, jc_crc_word(p + 8), 4) ^ jc_crc_four(kind, jc_crc_word(p + 12), 0);
    }
    for (; n >= 4; n -= 4, p += 4) {
        raw = jc_crc_four(kind, jc_crc_word(p) ^ raw, 0);
    }
    for (; n > 0; n--, p++) {
        raw = (raw >> 8) ^ kind->table[0][(raw ^ *p) & 255];
    }
    return raw;
}

static uint32_t jc_crc_table_update(const jc_crc_kind *kind, uint32_t crc, const uint8_t *p, size_t n)
{
    return ~jc_crc_table_raw(kind, ~crc, p, n);
}

static inline uint32_t jc_crc_copy_blocks(const jc_crc_kind *kind, uint32_t crc, uint8_t *d, const uint8_t *p,
                                          size_t n, jc_crc_update_function update)
{
    while (n > 0) {
        size_t block = n < JC_CRC_BLOCK_BYTES ? n : JC_CRC_BLOCK_BYTES;

        memcpy(d, p, block);
        crc = update(kind, crc, d, block);
        d += block;
        p += block;
        n -= block;
    }
    return crc;
}

static uint32_t jc_crc_table_copy(const jc_crc_kind *kind, uint32_t crc, uint8_t *d, const uint8_t *p, size_t n)
{
    return jc_crc_copy_blocks(kind, crc, d, p, n, jc_crc_table_update);
}

static inline void jc_crc_add(jc_crc_kind *kind, const char *name, jc_crc_update_function update,
                              jc_crc_copy_function copy)
{
    kind->kernels[kind->count++] = (jc_crc_kernel){name, update, copy};
}

#define JC_CRC32_POLYNOMIAL UINT32_C(0xEDB88320)  /* 0x04C11DB7, reflected: zip, gzip, zlib */
#define JC_CRC32C_POLYNOMIAL UINT32_C(0x82F63B78) /* 0x1EDC6F41, reflected: Castagnoli, Brauer, Herrmann 1993 */

#if defined(__x86_64__)
#include "crc_x86.h"
#elif defined(__aarch64__) && defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#include "crc_arm.h"
#else
static inline void jc_crc_add_native(jc_crc_kind *kind) {}
#endif

/* Fills the tables and finds out what the machine can do. Called again, it does nothing: kernels may be running. */
static void jc_crc_setup(jc_crc_kind *kind, uint32_t polynomial)
{
    if (kind->count > 0) {
        return;
    }
    kind->polynomial = polynomial;
    kind->power[0] = JC_CRC_ONE >> 1;
    for (int i = 1; i < (int)(sizeof kind->power / sizeof kind->power[0]); i++) {
        kind->power[i] = jc_crc_times(kind, kind->power[i - 1], kind->power[i - 1]);
    }
    /* A table's entry for a byte is the raw value of that byte and as many zero bytes as the table's number. */
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t raw = byte;

        for (int bit = 0; bit < 8; bit++) {
            raw = (raw >> 1) ^ (polynomial & (0 - (raw & 1)));
        }
        kind->table[0][byte] = raw;
    }
    for (int i = 1; i < 16; i++) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t raw = kind->table[i - 1][byte];

            kind->table[i][byte] = (raw >> 8) ^ kind->table[0][raw & 255];
        }
    }
    jc_crc_add(kind, "table", jc_crc_table_update, jc_crc_table_copy);
    jc_crc_add_native(kind);
}

static inline const jc_crc_kernel *jc_crc_at(const jc_crc_kind *kind, size_t i)
{
    return &kind->kernels[i];
}

static inline const jc_crc_kernel *jc_crc_best(const jc_crc_kind *kind)
{
    return jc_crc_at(kind, kind->count - 1);
}

#endif
