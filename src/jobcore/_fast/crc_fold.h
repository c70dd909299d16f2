/* Folding by carry-less multiplication: the method and its constants. The kernels are in crc_fold_kernel.h.
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

#ifndef JOBCORE_FAST_CRC_FOLD_H
#define JOBCORE_FAST_CRC_FOLD_H

/* x^n mod P, for a half register: bit i of 64 is the coefficient of x^(63 - i). */
static inline uint64_t jc_fold_multiplier(const jc_crc_kind *kind, uint64_t n)
{
    return (uint64_t)jc_crc_power(kind, n, 0) << 32;
}

static void jc_fold_setup(jc_crc_kind *kind)
{
    jc_crc_fold *fold = &kind->fold;

    for (int i = 0; i < JC_FOLD_DISTANCES; i++) {
        uint64_t bits = (uint64_t)128 << i;

        fold->by[i][0] = jc_fold_multiplier(kind, bits + 63);
        fold->by[i][1] = jc_fold_multiplier(kind, bits - 1);
    }
    fold->last[0] = jc_fold_multiplier(kind, 95);
    fold->last[1] = 0;

    /* Long division. The first step gives the quotient's x^64, its bit 0, and leaves x^32 mod P. */
    uint64_t quotient = 1;
    uint32_t rest = kind->polynomial;

    for (int i = 1; i < 64; i++) {
        uint32_t top = rest & 1;

        rest = (rest >> 1) ^ (kind->polynomial & (0 - top));
        quotient |= (uint64_t)top << i;
    }
    fold->divide[0] = quotient;
    fold->divide[1] = (uint64_t)kind->polynomial << 1 | 1;

    for (int i = 0; i < 48; i++) {
        fold->shift[i] = i >= 16 && i < 32 ? (uint8_t)(i - 16) : 0x80;
    }
}

#endif
