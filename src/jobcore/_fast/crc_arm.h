/* Checksums on 64-bit ARM, little-endian: the kernels, and which of them this processor can run.
 *
 * The instructions are written as assembler and not as the intrinsics of <arm_acle.h> and <arm_neon.h>: older
 * compilers declare those only if the whole file is compiled for such a processor.
 */

#ifndef JOBCORE_FAST_CRC_ARM_H
#define JOBCORE_FAST_CRC_ARM_H

#include <arm_neon.h>

#if defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__linux__)
#include <sys/auxv.h>
#endif

#include "crc_fold.h"

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

/* ---- the instructions for both polynomials ---- */

#define JC_ARM_STEP(name, instruction, type, registers)                                                              \
    JC_CRC_TARGET __attribute__((always_inline)) static inline uint32_t name(uint32_t raw, type data)               \
    {                                                                                                               \
        __asm__(instruction " %w0, %w0, " registers : "+r"(raw) : "r"(data));                                       \
        return raw;                                                                                                 \
    }

JC_ARM_STEP(jc_arm_crc32_eight, "crc32x", uint64_t, "%x1")
JC_ARM_STEP(jc_arm_crc32_one, "crc32b", uint32_t, "%w1")
JC_ARM_STEP(jc_arm_crc32c_eight, "crc32cx", uint64_t, "%x1")
JC_ARM_STEP(jc_arm_crc32c_one, "crc32cb", uint32_t, "%w1")

#define STREAM_NAME(x) jc_armv8_crc32_##x
#define STREAM_TARGET JC_CRC_TARGET
#define STREAM_EIGHT(raw, w) jc_arm_crc32_eight(raw, w)
#define STREAM_ONE(raw, b) jc_arm_crc32_one(raw, b)
#include "crc_streams.h"

#define STREAM_NAME(x) jc_armv8_crc32c_##x
#define STREAM_TARGET JC_CRC_TARGET
#define STREAM_EIGHT(raw, w) jc_arm_crc32c_eight(raw, w)
#define STREAM_ONE(raw, b) jc_arm_crc32c_one(raw, b)
#include "crc_streams.h"

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
JC_V128 uint32_t jc_v128_reduce(jc_v128 v, const jc_crc_fold *fold)
{
    const jc_v128 by = jc_v128_load(fold->last), quotient_by = jc_v128_load(fold->divide);
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
#define FOLD_NARROW(v, fold) (v)
#include "crc_fold_kernel.h"

/* ---- what this processor can do ---- */

#if defined(__APPLE__)
static inline int jc_arm_has(const char *name)
{
    int value = 0;
    size_t size = sizeof value;

    return sysctlbyname(name, &value, &size, NULL, 0) == 0 && value != 0;
}
#endif

static void jc_crc_add_native(jc_crc_kind *kind)
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
    if (crc && kind->polynomial == JC_CRC32_POLYNOMIAL) {
        jc_crc_add(kind, "armv8-crc32", jc_armv8_crc32_update, jc_armv8_crc32_copy);
    }
    if (crc && kind->polynomial == JC_CRC32C_POLYNOMIAL) {
        jc_crc_add(kind, "armv8-crc32c", jc_armv8_crc32c_update, jc_armv8_crc32c_copy);
    }
    if (pmull) {
        jc_fold_setup(kind);
        jc_crc_add(kind, "armv8-pmull", jc_armv8_pmull_update, jc_armv8_pmull_copy);
    }
}

#endif
