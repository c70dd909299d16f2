/* A kernel on an instruction for one polynomial, once for each time that this file is included. It defines
 * STREAM_NAME(update) and STREAM_NAME(copy).
 *
 * The including file defines
 *
 *   STREAM_NAME(x)        x with the kernel's name in it
 *   STREAM_TARGET         the attribute that lets a function use the instruction
 *   STREAM_EIGHT(raw, w)  the raw value with the eight bytes of the word w added
 *   STREAM_ONE(raw, b)    the same with one byte
 */

#ifndef JOBCORE_FAST_CRC_STREAMS_H
#define JOBCORE_FAST_CRC_STREAMS_H

/* Bytes in each of three streams, as long as a copied block together. One stream alone waits two or three cycles for each result. */
#define JC_STREAM_BYTES (JC_CRC_BLOCK_BYTES / 3)

static inline uint64_t jc_stream_word(const uint8_t *p)
{
    uint64_t word;

    memcpy(&word, p, sizeof word);
    return word;
}

#endif

STREAM_TARGET static uint32_t STREAM_NAME(update)(const jc_crc_kind *kind, uint32_t crc, const uint8_t *p, size_t n)
{
    uint32_t raw = ~crc;

    if (n >= 3 * JC_STREAM_BYTES) {
        const uint32_t past_one = jc_crc_power(kind, JC_STREAM_BYTES, 3);

        do {
            uint32_t second = 0, third = 0;

            for (size_t i = 0; i < JC_STREAM_BYTES; i += 8) {
                raw = STREAM_EIGHT(raw, jc_stream_word(p + i));
                second = STREAM_EIGHT(second, jc_stream_word(p + JC_STREAM_BYTES + i));
                third = STREAM_EIGHT(third, jc_stream_word(p + 2 * JC_STREAM_BYTES + i));
            }
            raw = jc_crc_times(kind, jc_crc_times(kind, raw, past_one) ^ second, past_one) ^ third;
            p += 3 * JC_STREAM_BYTES;
            n -= 3 * JC_STREAM_BYTES;
        } while (n >= 3 * JC_STREAM_BYTES);
    }
    for (; n >= 8; n -= 8, p += 8) {
        raw = STREAM_EIGHT(raw, jc_stream_word(p));
    }
    for (; n > 0; n--, p++) {
        raw = STREAM_ONE(raw, *p);
    }
    return ~raw;
}

static uint32_t STREAM_NAME(copy)(const jc_crc_kind *kind, uint32_t crc, uint8_t *d, const uint8_t *p, size_t n)
{
    return jc_crc_copy_blocks(kind, crc, d, p, n, STREAM_NAME(update));
}

#undef STREAM_NAME
#undef STREAM_TARGET
#undef STREAM_EIGHT
#undef STREAM_ONE
