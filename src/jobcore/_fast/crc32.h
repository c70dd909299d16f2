/* CRC-32 as zip, gzip and zlib have it: reflected, polynomial 0x04C11DB7, start and final XOR with all ones.
 *
 * Kernels, in order of preference, best last; crc32_setup() lists those that this machine can run:
 *
 *   table           portable: 16 bytes a step through 16 tables
 *   armv8-crc32     the CRC-32 instructions of ARMv8, three streams at a time
 *   armv8-pmull     folding by carry-less multiplication, 128-bit registers
 *   pclmulqdq       the same on x86-64
 *   vpclmulqdq-256  the same, two lanes in each AVX2 register
 *   vpclmulqdq-512  the same, four lanes in each AVX-512 register
 *
 * Everything here is derived from the polynomial when crc32_setup() runs: no table or constant is written down.
 *
 * Conventions. A polynomial over GF(2) of degree below 32 is held "reflected": bit i of the word is the
 * coefficient of x^(31 - i), so that the first bit of the data, the lowest of its byte, has the highest power.
 * "Raw" means without the two inversions: the raw value of a message M is M * x^32 mod P.
 */

#ifndef JOBCORE_FAST_CRC32_H
#define JOBCORE_FAST_CRC32_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define JC_CRC32_POLYNOMIAL UINT32_C(0xEDB88320) /* P without its x^32, reflected */
#define JC_CRC32_ONE UINT32_C(0x80000000)        /* x^0, reflected */

/* From here on a copy goes past the caches: into an arena larger than they are that is 1.3 to 1.6 times as fast, since
 * no line is fetched to be overwritten. A copy that fits the first-level cache is likely to be read again soon. */
#ifndef JC_CRC32_STREAM_BYTES
#define JC_CRC32_STREAM_BYTES ((size_t)32 << 10)
#endif
/* A kernel that cannot copy by itself copies this much and reads it back from the first-level cache. */
#define JC_CRC32_BLOCK_BYTES ((size_t)8 << 10)

#define JC_CRC32_MAX_KERNELS 4

typedef struct {
    const char *name;
    uint32_t (*update)(uint32_t crc, const uint8_t *data, size_t n);
    /* The checksum is that of the bytes written to `dst`, even if another thread changes `src` meanwhile: each
     * byte is read from `src` once. */
    uint32_t (*copy)(uint32_t crc, uint8_t *dst, const uint8_t *src, size_t n);
} jc_crc32_kernel;

/* Written by crc32_setup() only, before any other thread can be here: at the import of the one module that
 * includes this header. */
static struct {
    uint32_t table[16][256];
    /* x^(2^i) mod P */
    uint32_t power[68];
    jc_crc32_kernel kernels[JC_CRC32_MAX_KERNELS];
    size_t count;
} jc_crc32;

/* ---- arithmetic modulo P ---- */

/* a * b mod P, by shift and add; no branch depends on the data. */
static inline uint32_t jc_crc32_times(uint32_t a, uint32_t b)
{
    uint32_t product = 0;

    for (int i = 31; i >= 0; i--) {
        product ^= b & (0 - (a >> i & 1));
        b = (b >> 1) ^ (JC_CRC32_POLYNOMIAL & (0 - (b & 1)));
    }
    return product;
}

/* x^(n * 2^shift) mod P, for a shift of at most 4. */
static inline uint32_t jc_crc32_power(uint64_t n, unsigned shift)
{
    uint32_t result = JC_CRC32_ONE;

    for (unsigned i = shift; n != 0; i++, n >>= 1) {
        if (n & 1) {
            result = jc_crc32_times(result, jc_crc32.power[i]);
        }
    }
    return result;
}

/* The checksum of two messages joined, from those of the parts: the first one moves up by the 8 * n powers that the
 * second takes. The inversions of both cancel out. */
static inline uint32_t jc_crc32_join(uint32_t first, uint32_t second, uint64_t second_bytes)
{
    return jc_crc32_times(first, jc_crc32_power(second_bytes, 3)) ^ second;
}

/* ---- the portable kernel ---- */

static inline uint32_t jc_crc32_word(const uint8_t *p)
{
    uint32_t word;

    memcpy(&word, p, sizeof word);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap32(word);
#endif
    return word;
}

/* The share of four bytes that have `after` more bytes behind them in this step. */
static inline uint32_t jc_crc32_four(uint32_t word, int after)
{
    const uint32_t(*table)[256] = (const uint32_t(*)[256])jc_crc32.table + after;

    return table[3][word & 255] ^ table[2][word >> 8 & 255] ^ table[1][word >> 16 & 255] ^ table[0][word >> 24];
}

/* Slicing: Kounavis and Berry, "A systematic approach to building high performance software-based CRC generators",
 * ISCC 2005; there by 8, here by 16. Takes and returns raw values. */
static inline uint32_t jc_crc32_table_raw(uint32_t raw, const uint8_t *p, size_t n)
{
    for (; n >= 16; n -= 16, p += 16) {
        raw = jc_crc32_four(jc_crc32_word(p) ^ raw, 12) ^ jc_crc32_four(jc_crc32_word(p + 4), 8) ^
              jc_crc32_four(jc_crc32_word(p + 8), 4) ^ jc_crc32_four(jc_crc32_word(p + 12), 0);
    }
    for (; n >= 4; n -= 4, p += 4) {
        raw = jc_crc32_four(jc_crc32_word(p) ^ raw, 0);
    }
    for (; n > 0; n--, p++) {
        raw = (raw >> 8) ^ jc_crc32.table[0][(raw ^ *p) & 255];
    }
    return raw;
}

static uint32_t jc_crc32_table_update(uint32_t crc, const uint8_t *p, size_t n)
{
    return ~jc_crc32_table_raw(~crc, p, n);
}

static inline uint32_t jc_crc32_copy_blocks(uint32_t crc, uint8_t *d, const uint8_t *p, size_t n,
                                            uint32_t (*update)(uint32_t, const uint8_t *, size_t))
{
    while (n > 0) {
        size_t block = n < JC_CRC32_BLOCK_BYTES ? n : JC_CRC32_BLOCK_BYTES;

        memcpy(d, p, block);
        crc = update(crc, d, block);
        d += block;
        p += block;
        n -= block;
    }
    return crc;
}

static uint32_t jc_crc32_table_copy(uint32_t crc, uint8_t *d, const uint8_t *p, size_t n)
{
    return jc_crc32_copy_blocks(crc, d, p, n, jc_crc32_table_update);
}

static inline void jc_crc32_add(const char *name, uint32_t (*update)(uint32_t, const uint8_t *, size_t),
                                uint32_t (*copy)(uint32_t, uint8_t *, const uint8_t *, size_t))
{
    jc_crc32.kernels[jc_crc32.count++] = (jc_crc32_kernel){name, update, copy};
}

#if defined(__x86_64__)
#include "crc32_x86.h"
#elif defined(__aarch64__) && defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#include "crc32_arm.h"
#else
static inline void jc_crc32_add_native(void) {}
#endif

/* Fills the tables and finds out what the machine can do. Called again, it does nothing: kernels may be running. */
static void jc_crc32_setup(void)
{
    if (jc_crc32.count > 0) {
        return;
    }
    jc_crc32.power[0] = JC_CRC32_ONE >> 1;
    for (int i = 1; i < (int)(sizeof jc_crc32.power / sizeof jc_crc32.power[0]); i++) {
        jc_crc32.power[i] = jc_crc32_times(jc_crc32.power[i - 1], jc_crc32.power[i - 1]);
    }
    /* A table's entry for a byte is the raw value of that byte and as many zero bytes as the table's number. */
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t raw = byte;

        for (int bit = 0; bit < 8; bit++) {
            raw = (raw >> 1) ^ (JC_CRC32_POLYNOMIAL & (0 - (raw & 1)));
        }
        jc_crc32.table[0][byte] = raw;
    }
    for (int i = 1; i < 16; i++) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t raw = jc_crc32.table[i - 1][byte];

            jc_crc32.table[i][byte] = (raw >> 8) ^ jc_crc32.table[0][raw & 255];
        }
    }
    jc_crc32_add("table", jc_crc32_table_update, jc_crc32_table_copy);
    jc_crc32_add_native();
}

static inline size_t jc_crc32_count(void)
{
    return jc_crc32.count;
}

static inline const jc_crc32_kernel *jc_crc32_at(size_t i)
{
    return &jc_crc32.kernels[i];
}

static inline uint32_t jc_crc32_update(uint32_t crc, const void *data, size_t n)
{
    return jc_crc32.kernels[jc_crc32.count - 1].update(crc, data, n);
}

static inline uint32_t jc_crc32_copy(uint32_t crc, void *dst, const void *src, size_t n)
{
    return jc_crc32.kernels[jc_crc32.count - 1].copy(crc, dst, src, n);
}

#endif
