/* CRC-32 as zip, gzip and zlib have it: polynomial 0x04C11DB7. The methods are in crc_base.h. */

#ifndef JOBCORE_FAST_CRC32_H
#define JOBCORE_FAST_CRC32_H

#include "crc_base.h"

static jc_crc_kind jc_crc32;

/* To be called at the import of each module that includes this header: each has tables of its own. */
static inline void jc_crc32_setup(void)
{
    jc_crc_setup(&jc_crc32, JC_CRC32_POLYNOMIAL);
}

static inline const jc_crc_kind *jc_crc32_kind(void)
{
    return &jc_crc32;
}

static inline uint32_t jc_crc32_update(uint32_t crc, const void *data, size_t n)
{
    return jc_crc_best(&jc_crc32)->update(&jc_crc32, crc, data, n);
}

static inline uint32_t jc_crc32_copy(uint32_t crc, void *dst, const void *src, size_t n)
{
    return jc_crc_best(&jc_crc32)->copy(&jc_crc32, crc, dst, src, n);
}

static inline uint32_t jc_crc32_join(uint32_t first, uint32_t second, uint64_t second_bytes)
{
    return jc_crc_join(&jc_crc32, first, second, second_bytes);
}

#endif
