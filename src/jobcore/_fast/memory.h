/* Memory for much data: aligned, and in huge pages where the system has them.
 *
 * Huge pages are few page faults, and few pieces of a direct write: a device takes so many pieces in a request, and of
 * pages of 4 KiB that is not enough to keep it busy.
 */
#ifndef JOBCORE_FAST_MEMORY_H
#define JOBCORE_FAST_MEMORY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#define JC_HUGE ((size_t)2 << 20)

/* Address space for `bytes`, a multiple of JC_HUGE, aligned to huge pages; NULL when there is none. munmap() it, but not in
 * a forked child, which does not have it. */
static uint8_t *jc_arena_map(size_t bytes)
{
    uint8_t *raw = mmap(NULL, bytes + JC_HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t before;
    if (raw == MAP_FAILED) {
        return NULL;
    }
    before = (size_t)(-(uintptr_t)raw % JC_HUGE);
    if (before > 0) {
        munmap(raw, before);
    }
    if (JC_HUGE - before > 0) {
        munmap(raw + before + bytes, JC_HUGE - before);
    }
#ifdef MADV_HUGEPAGE
    madvise(raw + before, bytes, MADV_HUGEPAGE); /* refused without harm */
#endif
#ifdef MADV_DONTFORK
    /* A child gets no copy of it: its pages would have to be copied one by one as the next save fills them. */
    madvise(raw + before, bytes, MADV_DONTFORK);
#endif
    return raw + before;
}

#endif
