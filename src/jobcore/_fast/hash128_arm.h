/* The kernel of hash128.h for NEON, which every 64-bit ARM processor has. */

#ifndef JOBCORE_FAST_HASH128_ARM_H
#define JOBCORE_FAST_HASH128_ARM_H

#include <arm_neon.h>

static inline uint64x2_t jc_hash128_neon_keyed(uint64x2_t v, uint64x2_t d, uint64x2_t k)
{
    const uint64x2_t keyed = veorq_u64(d, k);

    return vmlal_u32(vaddq_u64(v, vextq_u64(d, d, 1)), vmovn_u64(keyed), vshrn_n_u64(keyed, 32));
}

static inline uint64x2_t jc_hash128_neon_scramble(uint64x2_t v, uint64x2_t k)
{
    const uint32x2_t prime = vdup_n_u32((uint32_t)JC_P32_1);

    v = veorq_u64(veorq_u64(v, vshrq_n_u64(v, 47)), k);
    return vmlal_u32(vshlq_n_u64(vmull_u32(vshrn_n_u64(v, 32), prime), 32), vmovn_u64(v), prime);
}

#define HASH_NAME(x) jc_hash128_neon_##x
#define HASH_TARGET
#define HASH_WIDTH 2
#define HASH_V uint64x2_t
#define HASH_LOAD(p) vreinterpretq_u64_u8(vld1q_u8(p))
#define HASH_STORE(p, v) vst1q_u8(p, vreinterpretq_u8_u64(v))
#define HASH_KEYED(v, d, k) jc_hash128_neon_keyed(v, d, k)
#define HASH_SCRAMBLE(v, k) jc_hash128_neon_scramble(v, k)
#define HASH_PREFETCH(p) ((void)0)
#include "hash128_kernel.h"

static void jc_hash128_add_native(void)
{
    jc_hash128_add("neon", jc_hash128_neon_take);
}

#endif
