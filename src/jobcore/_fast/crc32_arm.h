/* CRC-32 on 64-bit ARM, little-endian: the kernels, and which of them this processor can run.
 *
 * The instructions are written as assembler and not as the intrinsics of <arm_acle.h> and <arm_neon.h>: older
 * compilers declare those only if the whole file is compiled for such a processor.
 */

#ifndef JOBCORE_FAST_CRC32_ARM_H
#define JOBCORE_FAST_CRC32_ARM_H

#include <arm_neon.h>

#if defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__linux__)
#include <sys/auxv.h>
#endif

#include "crc32_fold.h"

#if defined(__APPLE__)
/* The oldest processor of this system has them, and the compiler takes them as given. */
#define JC_CRC_TARGET
#define JC_PMULL_TARGET
#elif defined(__clang__)
#define JC_CRC_TARGET __attribute__((target("crc")))
#define JC_PMULL_TARGET __attribute__((target("aes")))
#else
#define JC_CRC_TARGET __attribute__((target("+crc")))
#define JC_PMULL_TARGET __attribute__((target("+crypto")))
#endif

/* ---- the CRC-32 instructions ---- */

/* Bytes in each of three streams. One stream alone waits two or three cycles for each result. */
#define JC_CRC_STREAM_BYTES ((size_t)4096)

JC_CRC_TARGET __attribute__((always_inline)) static inline uint32_t jc_crc_eight(uint32_t raw, const uint8_t *p)
{
    uint64_t word;

    memcpy(&word, p, sizeof word);
    __asm__("crc32x %w0, %w0, %x1" : "+r"(raw) : "r"(word));
    return raw;
}

JC_CRC_TARGET __attribute__((always_inline)) static inline uint32_t jc_crc_one(uint32_t raw, const uint8_t *p)
{
    uint32_t byte = *p;

    __asm__("crc32b %w0, %w0, %w1" : "+r"(raw) : "r"(byte));
    return raw;
}

JC_CRC_TARGET static uint32_t jc_armv8_crc32_update(uint32_t crc, const uint8_t *p, size_t n)
{
    uint32_t raw = ~crc;

    if (n >= 3 * JC_CRC_STREAM_BYTES) {
        const uint32_t past_one = jc_crc32_power(JC_CRC_STREAM_BYTES, 3);

        do {
            uint32_t second = 0, third = 0;

            for (size_t i = 0; i < JC_CRC_STREAM_BYTES; i += 8) {
                raw = jc_crc_eight(raw, p + i);
                second = jc_crc_eight(second, p + JC_CRC_STREAM_BYTES + i);
                third = jc_crc_eight(third, p + 2 * JC_CRC_STREAM_BYTES + i);
            }
            raw = jc_crc32_times(jc_crc32_times(raw, past_one) ^ second, past_one) ^ third;
            p += 3 * JC_CRC_STREAM_BYTES;
            n -= 3 * JC_CRC_STREAM_BYTES;
        } while (n >= 3 * JC_CRC_STREAM_BYTES);
    }
    for (; n >= 8; n -= 8, p += 8) {
        raw = jc_crc_eight(raw, p);
    }
    for (; n > 0; n--, p++) {
        raw = jc_crc_one(raw, p);
    }
    return ~raw;
}

static uint32_t jc_armv8_crc32_copy(uint32_t crc, uint8_t *d, const uint8_t *p, size_t n)
{
    return jc_crc32_copy_blocks(crc, d, p, n, jc_armv8_crc32_update);
}

/* ---- folding ---- */

#define JC_V128 JC_PMULL_TARGET __attribute__((always_inline)) static inline

typedef uint64x2_t jc_v128;

JC_V128 jc_v128 jc_v128_load(const void *p)
{
    return vreinterpretq_u64_u8(vld1q_u8((const uint8_t *)p));
}

JC_V128 void jc_v128_store(void *p, jc_v128 v)
{
    vst1q_u8((uint8_t *)p, vreinterpretq_u8_u64(v));
}

JC_V128 jc_v128 jc_v128_take(const uint8_t *p, uint8_t *d, int copy)
{
    jc_v128 v = jc_v128_load(p);

    if (copy) {
        jc_v128_store(d, v);
    }
    return v;
}

JC_V128 jc_v128 jc_v128_first(uint32_t raw)
{
    return vsetq_lane_u64(raw, vdupq_n_u64(0), 0);
}

JC_V128 jc_v128 jc_v128_plus(jc_v128 v, jc_v128 w)
{
    return veorq_u64(v, w);
}

/* Products of the low halves, and of the high ones. */
JC_V128 jc_v128 jc_v128_times_low(jc_v128 v, jc_v128 w)
{
    jc_v128 product;

    __asm__("pmull %0.1q, %1.1d, %2.1d" : "=w"(product) : "w"(v), "w"(w));
    return product;
}

JC_V128 jc_v128 jc_v128_times_high(jc_v128 v, jc_v128 w)
{
    jc_v128 product;

    __asm__("pmull2 %0.1q, %1.2d, %2.2d" : "=w"(product) : "w"(v), "w"(w));
    return product;
}

JC_V128 jc_v128 jc_v128_fold(jc_v128 v, jc_v128 k, jc_v128 w)
{
    return veorq_u64(veorq_u64(jc_v128_times_low(v, k), jc_v128_times_high(v, k)), w);
}

/* Byte i of the result is byte at[i] of `v`, or zero if the top bit of at[i] is set. */
JC_V128 jc_v128 jc_v128_shuffle(jc_v128 v, jc_v128 at)
{
    return vreinterpretq_u64_u8(vqtbl1q_u8(vreinterpretq_u8_u64(v), vreinterpretq_u8_u64(at)));
}

/* Byte i of the result is that of `w` if the top bit of mask[i] is set, else that of `v`. */
JC_V128 jc_v128 jc_v128_choose(jc_v128 mask, jc_v128 v, jc_v128 w)
{
    const uint8x16_t set = vcltzq_s8(vreinterpretq_s8_u64(mask));

    return vreinterpretq_u64_u8(vbslq_u8(set, vreinterpretq_u8_u64(w), vreinterpretq_u8_u64(v)));
}

/* R * x^32 mod P for the polynomial R in `v`, the raw value of a message that ends here. */
JC_V128 uint32_t jc_v128_reduce(jc_v128 v)
{
    const jc_v128 by = jc_v128_load(jc_fold.last), quotient_by = jc_v128_load(jc_fold.divide);
    const jc_v128 polynomial = vdupq_laneq_u64(quotient_by, 1);
    const uint64_t high = vgetq_lane_u64(v, 1);
    /* B = R * x^32 in 96 bits: L by its multiplier, H shifted into place. */
    const jc_v128 shifted = vsetq_lane_u64(high >> 32, vdupq_n_u64(high << 32), 1);
    const jc_v128 b = veorq_u64(jc_v128_times_low(v, by), shifted);
    /* Barrett: B less P times the quotient. The quotient of B / x^32 by P / x^32 is exact, since B has so few bits. */
    const uint64_t top = vgetq_lane_u64(b, 0) >> 32 | vgetq_lane_u64(b, 1) << 32;
    const jc_v128 quotient = jc_v128_times_low(vdupq_n_u64(top), quotient_by);
    const jc_v128 product = jc_v128_times_low(quotient, polynomial);

    return (uint32_t)(vgetq_lane_u64(b, 1) >> 32) ^ (uint32_t)vgetq_lane_u64(product, 1);
}

/* These processors see long runs of loads and of stores by themselves: no hint, no special store. */
#define FOLD_NAME(x) jc_armv8_pmull_##x
#define FOLD_TARGET JC_PMULL_TARGET
#define FOLD_LANES 1
#define FOLD_V jc_v128
#define FOLD_LOAD(p) jc_v128_load(p)
#define FOLD_STORE(p, v) jc_v128_store(p, v)
#define FOLD_STREAM(p, v) jc_v128_store(p, v)
#define FOLD_FENCE() ((void)0)
#define FOLD_PREFETCH(p) ((void)0)
#define FOLD_EVERY(k) jc_v128_load(k)
#define FOLD_FIRST(raw) jc_v128_first(raw)
#define FOLD_PLUS(v, w) jc_v128_plus(v, w)
#define FOLD_STEP(v, k, w) jc_v128_fold(v, k, w)
#define FOLD_NARROW(v) (v)
#include "crc32_kernel.h"

/* ---- what this processor can do ---- */

#if defined(__APPLE__)
static inline int jc_arm_has(const char *name)
{
    int value = 0;
    size_t size = sizeof value;

    return sysctlbyname(name, &value, &size, NULL, 0) == 0 && value != 0;
}
#endif

static void jc_crc32_add_native(void)
{
    int crc = 0, pmull = 0;

#if defined(__APPLE__)
    crc = jc_arm_has("hw.optional.armv8_crc32") || jc_arm_has("hw.optional.arm.FEAT_CRC32");
    /* The name is of macOS 12; before it there was one processor, and that has the instruction. */
    pmull = jc_arm_has("hw.optional.arm.FEAT_PMULL") || jc_arm_has("hw.optional.armv8_crc32");
#elif defined(__linux__)
    const unsigned long has_pmull = 1ul << 4, has_crc32 = 1ul << 7;
    const unsigned long has = getauxval(AT_HWCAP);

    crc = (has & has_crc32) != 0;
    pmull = (has & has_pmull) != 0;
#endif
    if (crc) {
        jc_crc32_add("armv8-crc32", jc_armv8_crc32_update, jc_armv8_crc32_copy);
    }
    if (pmull) {
        jc_fold_setup();
        jc_crc32_add("armv8-pmull", jc_armv8_pmull_update, jc_armv8_pmull_copy);
    }
}

#endif
