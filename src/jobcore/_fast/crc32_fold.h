/* Folding by carry-less multiplication: the method and its constants. The kernels are in crc32_kernel.h.
 *
 * Source of the method: Gopal, Ozturk, Guilford, Wolrich, Feghali, Dixon, Karakoyunlu, "Fast CRC Computation for
 * Generic Polynomials Using PCLMULQDQ Instruction", Intel white paper 323102, December 2009. Here reflected, with
 * any width of register, and with constants that are computed.
 *
 * A register holds 128 bits of the message as the polynomial R: bit i is the coefficient of x^(127 - i), so that R is
 * L * x^64 + H with L the low half, which came first. Moving R up past D more bits makes it R * x^D, and modulo P
 *
 *     R * x^D = L * (x^(D + 64) mod P) + H * (x^D mod P)
 *
 * which is a sum of two products of at most 96 bits: it fits a register, and is added to what stands D bits further
 * on. The instruction multiplies reflected halves to a result that is one power short of its place, hence D + 63 and
 * D - 1 below. Registers side by side, and the lanes in one, are folded alike with D the distance between them.
 */

#ifndef JOBCORE_FAST_CRC32_FOLD_H
#define JOBCORE_FAST_CRC32_FOLD_H

enum { JC_FOLD_DISTANCES = 6 };

/* Written by jc_fold_setup() only. */
static struct {
    /* Multipliers of L and H for the distances of 16, 32, ... 512 bytes. */
    uint64_t by[JC_FOLD_DISTANCES][2];
    /* For the last 128 bits: the multiplier of L, and nothing for H. */
    uint64_t last[2];
    /* x^96 divided by P, less its last bit; P. */
    uint64_t divide[2];
    /* For a byte shuffle. Read at 16 + s it moves bytes down by s, read at 16 - s up by s; the other bytes have the
     * top bit set. */
    uint8_t shift[48];
} jc_fold;

/* x^n mod P, for a half register: bit i of 64 is the coefficient of x^(63 - i). */
static inline uint64_t jc_fold_multiplier(uint64_t n)
{
    return (uint64_t)jc_crc32_power(n, 0) << 32;
}

static void jc_fold_setup(void)
{
    for (int i = 0; i < JC_FOLD_DISTANCES; i++) {
        uint64_t bits = (uint64_t)128 << i;

        jc_fold.by[i][0] = jc_fold_multiplier(bits + 63);
        jc_fold.by[i][1] = jc_fold_multiplier(bits - 1);
    }
    jc_fold.last[0] = jc_fold_multiplier(95);
    jc_fold.last[1] = 0;

    /* Long division. The first step gives the quotient's x^64, its bit 0, and leaves x^32 mod P. */
    uint64_t quotient = 1;
    uint32_t rest = JC_CRC32_POLYNOMIAL;

    for (int i = 1; i < 64; i++) {
        uint32_t top = rest & 1;

        rest = (rest >> 1) ^ (JC_CRC32_POLYNOMIAL & (0 - top));
        quotient |= (uint64_t)top << i;
    }
    jc_fold.divide[0] = quotient;
    jc_fold.divide[1] = (uint64_t)JC_CRC32_POLYNOMIAL << 1 | 1;

    for (int i = 0; i < 48; i++) {
        jc_fold.shift[i] = i >= 16 && i < 32 ? (uint8_t)(i - 16) : 0x80;
    }
}

#endif
