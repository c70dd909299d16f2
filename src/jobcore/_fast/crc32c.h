/* CRC-32C as iSCSI, ext4 and Zarr have it: polynomial 0x1EDC6F41. The methods are in crc_base.h. */

#ifndef JOBCORE_FAST_CRC32C_H
#define JOBCORE_FAST_CRC32C_H

#include "crc_base.h"

static jc_crc_kind jc_crc32c;

/* To be called at the import of each module that includes this header: each has tables of its own. */
static inline void jc_crc32c_setup(void)
{
    jc_crc_setup(&jc_crc32c, JC_CRC32C_POLYNOMIAL);
}

static inline const jc_crc_kind *jc_crc32c_kind(void)
{
    return &jc_crc32c;
}

static inline uint32_t jc_crc32c_update(uint32_t crc, const void *data, size_t n)
{
    return jc_crc_best(&jc_crc32c)->update(&jc_crc32c, crc, data, n);
}

static inline uint32_t jc_crc32c_copy(uint32_t crc, void *dst, const void *src, size_t n)
{
    return jc_crc_best(&jc_crc32c)->copy(&jc_crc32c, crc, dst, src, n);
}

static inline uint32_t jc_crc32c_join(uint32_t first, uint32_t second, uint64_t second_bytes)
{
    return jc_crc_join(&jc_crc32c, first, second, second_bytes);
}

#endif
