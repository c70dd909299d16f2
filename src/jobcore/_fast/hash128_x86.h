/* The kernel of hash128.h for AVX2. No file of the build is compiled for it: each function names its instructions. */

#ifndef JOBCORE_FAST_HASH128_X86_H
#define JOBCORE_FAST_HASH128_X86_H

#include <cpuid.h>
#include <immintrin.h>

#define JC_HASH128_AVX2 __attribute__((always_inline, target("avx2"))) static inline

JC_HASH128_AVX2 __m256i jc_hash128_avx2_keyed(__m256i v, __m256i d, __m256i k)
{
    const __m256i keyed = _mm256_xor_si256(d, k);

    v = _mm256_add_epi64(v, _mm256_shuffle_epi32(d, _MM_SHUFFLE(1, 0, 3, 2)));
    return _mm256_add_epi64(v, _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32)));
}

JC_HASH128_AVX2 __m256i jc_hash128_avx2_scramble(__m256i v, __m256i k)
{
    const __m256i prime = _mm256_set1_epi64x((long long)JC_P32_1);

    v = _mm256_xor_si256(_mm256_xor_si256(v, _mm256_srli_epi64(v, 47)), k);
    return _mm256_add_epi64(_mm256_mul_epu32(v, prime),
                            _mm256_slli_epi64(_mm256_mul_epu32(_mm256_srli_epi64(v, 32), prime), 32));
}

#define HASH_NAME(x) jc_hash128_avx2_##x
#define HASH_TARGET __attribute__((target("avx2")))
#define HASH_WIDTH 4
#define HASH_V __m256i
#define HASH_LOAD(p) _mm256_loadu_si256((const __m256i *)(p))
#define HASH_STORE(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define HASH_KEYED(v, d, k) jc_hash128_avx2_keyed(v, d, k)
#define HASH_SCRAMBLE(v, k) jc_hash128_avx2_scramble(v, k)
#define HASH_PREFETCH(p) _mm_prefetch((const char *)(p), _MM_HINT_T0)
#include "hash128_kernel.h"

static void jc_hash128_add_native(void)
{
    const uint32_t osxsave = 1u << 27, avx2 = 1u << 5, saved_256 = 0x06;
    uint32_t eax, ebx, ecx, edx, saved, high;

    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & osxsave)) {
        return;
    }
    /* Without this check the kernel would run on a system that loses the upper halves of its registers. */
    __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    if ((saved & saved_256) == saved_256 && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (ebx & avx2)) {
        jc_hash128_add("avx2", jc_hash128_avx2_take);
    }
}

#endif
