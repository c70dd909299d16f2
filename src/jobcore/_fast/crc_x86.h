/* Checksums on x86-64: the folding kernels, and which of them this processor can run.
 *
 * The CRC-32C instruction of SSE 4.2 is not used: three streams of it beat one-lane folding in cache only, never the
 * wider ones, and are slower than it below 12 KiB and in copies.
 *
 * No file of the build is compiled for a newer processor than the oldest: each function names its instructions.
 */

#ifndef JOBCORE_FAST_CRC_X86_H
#define JOBCORE_FAST_CRC_X86_H

#include <cpuid.h>
#include <immintrin.h>

#include "crc_fold.h"

/* ---- one lane ---- */

#define JC_V128 __attribute__((always_inline, target("sse4.1,pclmul"))) static inline

typedef __m128i jc_v128;

JC_V128 jc_v128 jc_v128_load(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

JC_V128 void jc_v128_store(void *p, jc_v128 v)
{
    _mm_storeu_si128((__m128i *)p, v);
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
    return _mm_cvtsi32_si128((int)raw);
}

JC_V128 jc_v128 jc_v128_plus(jc_v128 v, jc_v128 w)
{
    return _mm_xor_si128(v, w);
}

JC_V128 jc_v128 jc_v128_fold(jc_v128 v, jc_v128 k, jc_v128 w)
{
    return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(v, k, 0x00), _mm_clmulepi64_si128(v, k, 0x11)), w);
}

/* Byte i of the result is byte at[i] of `v`, or zero if the top bit of at[i] is set. */
JC_V128 jc_v128 jc_v128_shuffle(jc_v128 v, jc_v128 at)
{
    return _mm_shuffle_epi8(v, at);
}

/* Byte i of the result is that of `w` if the top bit of mask[i] is set, else that of `v`. */
JC_V128 jc_v128 jc_v128_choose(jc_v128 mask, jc_v128 v, jc_v128 w)
{
    return _mm_blendv_epi8(v, w, mask);
}

/* R * x^32 mod P for the polynomial R in `v`, the raw value of a message that ends here. */
JC_V128 uint32_t jc_v128_reduce(jc_v128 v, const jc_crc_fold *fold)
{
    const jc_v128 by = jc_v128_load(fold->last), divide = jc_v128_load(fold->divide);
    /* B = R * x^32 in 96 bits: L by its multiplier, H shifted into place. */
    const jc_v128 b = _mm_xor_si128(_mm_clmulepi64_si128(v, by, 0x00), _mm_slli_si128(_mm_srli_si128(v, 8), 4));
    /* Barrett: B less P times the quotient. The quotient of B / x^32 by P / x^32 is exact, since B has so few bits. */
    const jc_v128 quotient = _mm_clmulepi64_si128(_mm_srli_si128(b, 4), divide, 0x00);
    const jc_v128 product = _mm_clmulepi64_si128(quotient, divide, 0x10);

    return (uint32_t)_mm_extract_epi32(b, 3) ^ (uint32_t)_mm_extract_epi32(product, 2);
}

#define FOLD_NAME(x) jc_pclmulqdq_##x
#define FOLD_TARGET __attribute__((target("sse4.1,pclmul")))
#define FOLD_LANES 1
#define FOLD_V __m128i
#define FOLD_LOAD(p) jc_v128_load(p)
#define FOLD_STORE(p, v) jc_v128_store(p, v)
#define FOLD_STREAM(p, v) _mm_stream_si128((__m128i *)(p), v)
#define FOLD_FENCE() _mm_sfence()
#define FOLD_PREFETCH(p) _mm_prefetch((const char *)(p), _MM_HINT_T0)
#define FOLD_EVERY(k) jc_v128_load(k)
#define FOLD_FIRST(raw) jc_v128_first(raw)
#define FOLD_PLUS(v, w) jc_v128_plus(v, w)
#define FOLD_STEP(v, k, w) jc_v128_fold(v, k, w)
#define FOLD_NARROW(v, fold) (v)
#include "crc_fold_kernel.h"

/* ---- two lanes ---- */

#define JC_V256_TARGET "avx2,vpclmulqdq,pclmul"

__attribute__((always_inline, target(JC_V256_TARGET))) static inline __m256i jc_v256_fold(__m256i v, __m256i k,
                                                                                          __m256i w)
{
    return _mm256_xor_si256(
        _mm256_xor_si256(_mm256_clmulepi64_epi128(v, k, 0x00), _mm256_clmulepi64_epi128(v, k, 0x11)), w);
}

__attribute__((always_inline, target(JC_V256_TARGET))) static inline jc_v128 jc_v256_narrow(__m256i v,
                                                                                            const jc_crc_fold *fold)
{
    return jc_v128_fold(_mm256_castsi256_si128(v), jc_v128_load(fold->by[0]), _mm256_extracti128_si256(v, 1));
}

/* A cast of one lane to two or four would leave the others undefined: hence the _set_ below, for the first bits. */
#define FOLD_NAME(x) jc_vpclmulqdq_256_##x
#define FOLD_TARGET __attribute__((target(JC_V256_TARGET)))
#define FOLD_LANES 2
#define FOLD_V __m256i
#define FOLD_LOAD(p) _mm256_loadu_si256((const __m256i *)(p))
#define FOLD_STORE(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define FOLD_STREAM(p, v) _mm256_stream_si256((__m256i *)(p), v)
#define FOLD_FENCE() _mm_sfence()
#define FOLD_PREFETCH(p) _mm_prefetch((const char *)(p), _MM_HINT_T0)
#define FOLD_EVERY(k) _mm256_broadcastsi128_si256(jc_v128_load(k))
#define FOLD_FIRST(raw) _mm256_setr_epi32((int)(raw), 0, 0, 0, 0, 0, 0, 0)
#define FOLD_PLUS(v, w) _mm256_xor_si256(v, w)
#define FOLD_STEP(v, k, w) jc_v256_fold(v, k, w)
#define FOLD_NARROW(v, fold) jc_v256_narrow(v, fold)
#include "crc_fold_kernel.h"

/* ---- four lanes ---- */

#define JC_V512_TARGET "avx512f,avx512vl,avx2,vpclmulqdq,pclmul"

__attribute__((always_inline, target(JC_V512_TARGET))) static inline __m512i jc_v512_fold(__m512i v, __m512i k,
                                                                                          __m512i w)
{
    /* 0x96 is the sum of three. */
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(v, k, 0x00), _mm512_clmulepi64_epi128(v, k, 0x11), w,
                                     0x96);
}

__attribute__((always_inline, target(JC_V512_TARGET))) static inline jc_v128 jc_v512_narrow(__m512i v,
                                                                                            const jc_crc_fold *fold)
{
    return jc_v256_narrow(jc_v256_fold(_mm512_castsi512_si256(v),
                                       _mm256_broadcastsi128_si256(jc_v128_load(fold->by[1])),
                                       _mm512_extracti64x4_epi64(v, 1)),
                          fold);
}

#define FOLD_NAME(x) jc_vpclmulqdq_512_##x
#define FOLD_TARGET __attribute__((target(JC_V512_TARGET)))
#define FOLD_LANES 4
#define FOLD_V __m512i
#define FOLD_LOAD(p) _mm512_loadu_si512((const void *)(p))
#define FOLD_STORE(p, v) _mm512_storeu_si512((void *)(p), v)
#define FOLD_STREAM(p, v) _mm512_stream_si512((void *)(p), v)
#define FOLD_FENCE() _mm_sfence()
#define FOLD_PREFETCH(p) _mm_prefetch((const char *)(p), _MM_HINT_T0)
#define FOLD_EVERY(k) _mm512_broadcast_i32x4(jc_v128_load(k))
#define FOLD_FIRST(raw) _mm512_setr_epi32((int)(raw), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
#define FOLD_PLUS(v, w) _mm512_xor_si512(v, w)
#define FOLD_STEP(v, k, w) jc_v512_fold(v, k, w)
#define FOLD_NARROW(v, fold) jc_v512_narrow(v, fold)
#include "crc_fold_kernel.h"

/* ---- what this processor can do ---- */

/* The registers that the operating system saves. Without this check a kernel would run on a system that loses the
 * upper halves of its registers at a task switch. On macOS the AVX-512 bits show only once a thread has used such
 * registers, so that the two-lane kernel is taken there: slower, never wrong. */
static inline uint32_t jc_x86_saved_registers(void)
{
    uint32_t low, high;

    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static void jc_crc_add_native(jc_crc_kind *kind)
{
    const uint32_t pclmulqdq = 1u << 1, sse41 = 1u << 19, osxsave = 1u << 27; /* leaf 1, ecx */
    const uint32_t avx2 = 1u << 5, avx512f = 1u << 16, avx512vl = 1u << 31;   /* leaf 7, ebx */
    const uint32_t vpclmulqdq = 1u << 10;                                     /* leaf 7, ecx */
    const uint32_t saved_256 = 0x06, saved_512 = 0xE6;                        /* xgetbv(0) */
    uint32_t eax, ebx, ecx, edx, saved;

    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || (ecx & (pclmulqdq | sse41)) != (pclmulqdq | sse41)) {
        return;
    }
    jc_fold_setup(kind);
    jc_crc_add(kind, "pclmulqdq", jc_pclmulqdq_update, jc_pclmulqdq_copy);
    if (!(ecx & osxsave)) {
        return;
    }
    saved = jc_x86_saved_registers();
    if ((saved & saved_256) != saved_256 || !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || !(ebx & avx2) ||
        !(ecx & vpclmulqdq)) {
        return;
    }
    jc_crc_add(kind, "vpclmulqdq-256", jc_vpclmulqdq_256_update, jc_vpclmulqdq_256_copy);
    if ((saved & saved_512) == saved_512 && (ebx & avx512f) && (ebx & avx512vl)) {
        jc_crc_add(kind, "vpclmulqdq-512", jc_vpclmulqdq_512_update, jc_vpclmulqdq_512_copy);
    }
}

#endif
