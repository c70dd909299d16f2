/* Memory for many arrays of one load.
 *
 * Small arrays share slabs of about 1 MiB, so that their memory comes in few calls; others share slabs of up to 64 MiB that are
 * backed by huge pages, whose faults are most of what it costs to read into fresh memory. Each array frees its part alone:
 * a slab goes with the last of them, and a large part gives its pages back at once.
 *
 * In front of each small part stands where it belongs. Large parts have nothing in front: to write it would touch a huge
 * page of nearly every part, and one thread would fill all that memory with zeros before several begin to read. Their
 * slabs lie at multiples of JC_SLAB_LARGE, so that an address tells the slab, which knows the sizes of its parts.
 *
 * Parts may be freed by several threads at once; everything else belongs to one thread.
 */
#ifndef JOBCORE_FAST_SLAB_H
#define JOBCORE_FAST_SLAB_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define JC_SLAB_SMALL ((size_t)1 << 20)         /* of small parts */
#define JC_SLAB_LARGE ((size_t)64 << 20)        /* at most, of large parts, unless one alone is larger */
#define JC_SLAB_LIMIT ((size_t)32 << 10)        /* the first size of a large part */
#define JC_SLAB_PAGE ((size_t)4096)             /* pages may be larger; then less is given back early */
#define JC_SLAB_HUGE ((size_t)2 << 20)
#define JC_SLAB_ROUND ((size_t)64 << 10)        /* a multiple of any page */
#define JC_SLAB_HEAD ((size_t)32 << 10)         /* more than what stands before the first large part */

typedef struct {
    size_t live;                /* parts that are not freed; only by atomic steps */
    size_t map_bytes;           /* 0 when it is of the heap */
    size_t sizes[];             /* of large parts: bytes of the one that starts in this stretch of JC_SLAB_LIMIT bytes */
} jc_slab;

/* What stands in front of a small part. */
typedef struct {
    jc_slab *slab;              /* NULL: a part of its own, of the heap */
    size_t nbytes;
} jc_part;

typedef struct {
    jc_slab *slab;              /* the one that parts are taken of */
    uint8_t *next, *end;
} jc_slabs;

static jc_part *jc_part_of(void *data)
{
    return (jc_part *)data - 1;
}

/* From the start of one part to that of the next. */
static size_t jc_part_bytes(size_t nbytes)
{
    return nbytes < JC_SLAB_LIMIT ? (nbytes + sizeof(jc_part) + 15) / 16 * 16 : (nbytes + 63) / 64 * 64;
}

static void jc_slab_drop(jc_slab *slab, size_t parts)
{
    if (__atomic_sub_fetch(&slab->live, parts, __ATOMIC_ACQ_REL) == 0) {
        if (slab->map_bytes == 0) {
            free(slab);
        } else {
            munmap(slab, slab->map_bytes); /* the slab itself is in it */
        }
    }
}

/* The slab that a large part lies in. */
static jc_slab *jc_slab_of(void *data)
{
    return (jc_slab *)((uintptr_t)data / JC_SLAB_LARGE * JC_SLAB_LARGE);
}

/* The size of a large part. */
static size_t *jc_slab_size(void *data)
{
    jc_slab *slab = jc_slab_of(data);
    return &slab->sizes[((uintptr_t)data - (uintptr_t)slab) / JC_SLAB_LIMIT];
}

/* Memory of huge pages where there are any, which begins with its slab, at a multiple of JC_SLAB_LARGE. */
static jc_slab *jc_slab_map(size_t nbytes)
{
    size_t size = (nbytes + JC_SLAB_ROUND - 1) / JC_SLAB_ROUND * JC_SLAB_ROUND, before, after;
    uint8_t *raw = mmap(NULL, size + JC_SLAB_LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    jc_slab *slab;
    if (raw == MAP_FAILED) {
        return NULL;
    }
    before = (size_t)(-(uintptr_t)raw % JC_SLAB_LARGE);
    after = JC_SLAB_LARGE - before;
    if (before > 0) {
        munmap(raw, before);
    }
    if (after > 0) {
        munmap(raw + before + size, after);
    }
#ifdef MADV_HUGEPAGE
    madvise(raw + before, size, MADV_HUGEPAGE); /* a kernel without them refuses, without harm */
#endif
    slab = (jc_slab *)(raw + before);
    slab->map_bytes = size;
    return slab;
}

/* Begin another slab for a part; `left` is what this and all later parts of its kind take together. 0, or ENOMEM. */
static int jc_slabs_begin(jc_slabs *s, size_t nbytes, size_t left)
{
    int large = nbytes >= JC_SLAB_LIMIT;
    size_t need = jc_part_bytes(nbytes), most = large ? JC_SLAB_LARGE - JC_SLAB_HEAD : JC_SLAB_SMALL, size, head;
    jc_slab *slab;
    size = left < most ? left : most;
    size = size < need ? need : size;
    /* All parts start in the first JC_SLAB_LARGE bytes, one more stretch behind the last for what stands before them. */
    head = sizeof *slab + (large ? ((size < most ? size : most) / JC_SLAB_LIMIT + 2) * sizeof *slab->sizes : 0);
    head = (head + 63) / 64 * 64;
    if (large) {
        slab = jc_slab_map(head + size);
    } else {
        slab = malloc(head + size);
        if (slab != NULL) {
            slab->map_bytes = 0;
        }
    }
    if (slab == NULL) {
        return ENOMEM;
    }
    if (s->slab != NULL) {
        jc_slab_drop(s->slab, 1);
    }
    slab->live = 1; /* for as long as parts are taken of it */
    s->slab = slab;
    s->next = (uint8_t *)slab + head;
    s->end = s->next + size;
    return 0;
}

/* Take a part; NULL when there is no memory. */
static void *jc_slabs_take(jc_slabs *s, size_t nbytes, size_t left)
{
    uint8_t *data;
    if (nbytes > SIZE_MAX / 4) {
        return NULL;
    }
    if (s->slab == NULL || (size_t)(s->end - s->next) < jc_part_bytes(nbytes)) {
        if (jc_slabs_begin(s, nbytes, left)) {
            return NULL;
        }
    }
    data = s->next;
    s->next += jc_part_bytes(nbytes);
    __atomic_fetch_add(&s->slab->live, 1, __ATOMIC_RELAXED);
    if (nbytes >= JC_SLAB_LIMIT) {
        *jc_slab_size(data) = nbytes;
        return data;
    }
    ((jc_part *)data)->slab = s->slab;
    ((jc_part *)data)->nbytes = nbytes;
    return (jc_part *)data + 1;
}

/* Take no more parts. */
static void jc_slabs_end(jc_slabs *s)
{
    if (s->slab != NULL) {
        jc_slab_drop(s->slab, 1);
    }
    memset(s, 0, sizeof *s);
}

/* A part of its own. */
static void *jc_part_new(size_t nbytes, int zeros)
{
    jc_part *part = NULL;
    if (nbytes <= SIZE_MAX / 4) {
        part = zeros ? calloc(1, nbytes + sizeof *part) : malloc(nbytes + sizeof *part);
    }
    if (part == NULL) {
        return NULL;
    }
    part->slab = NULL;
    part->nbytes = nbytes;
    return part + 1;
}

/* Free a small part, or one of its own. */
static void jc_part_free(void *data)
{
    jc_part *part;
    if (data == NULL) {
        return;
    }
    part = jc_part_of(data);
    if (part->slab == NULL) {
        free(part);
    } else {
        jc_slab_drop(part->slab, 1);
    }
}

static void *jc_part_resize(void *data, size_t nbytes)
{
    void *other = jc_part_new(nbytes, 0);
    if (other != NULL && data != NULL) {
        size_t had = jc_part_of(data)->nbytes;
        memcpy(other, data, had < nbytes ? had : nbytes);
        jc_part_free(data);
    }
    return other;
}

/* A large part in a slab of its own, full of zeros; it may have few bytes, or none. */
static void *jc_large_new(size_t nbytes)
{
    jc_slabs s = {NULL, NULL, NULL};
    size_t room = nbytes < JC_SLAB_LIMIT ? JC_SLAB_LIMIT : nbytes;
    void *data = jc_slabs_take(&s, room, jc_part_bytes(room));
    jc_slabs_end(&s);
    if (data != NULL) {
        *jc_slab_size(data) = nbytes;
    }
    return data;
}

static void jc_large_free(void *data)
{
    jc_slab *slab;
    if (data == NULL) {
        return;
    }
    slab = jc_slab_of(data);
#ifdef MADV_DONTNEED
    if (__atomic_load_n(&slab->live, __ATOMIC_RELAXED) > 1) {
        uintptr_t low = ((uintptr_t)data + JC_SLAB_PAGE - 1) / JC_SLAB_PAGE * JC_SLAB_PAGE;
        uintptr_t high = ((uintptr_t)data + *jc_slab_size(data)) / JC_SLAB_PAGE * JC_SLAB_PAGE;
        if (high > low) {
            madvise((void *)low, high - low, MADV_DONTNEED); /* where pages are larger it is refused, without harm */
        }
    }
#endif
    jc_slab_drop(slab, 1);
}

static void *jc_large_resize(void *data, size_t nbytes)
{
    void *other = jc_large_new(nbytes);
    if (other != NULL && data != NULL) {
        size_t had = *jc_slab_size(data);
        memcpy(other, data, had < nbytes ? had : nbytes);
        jc_large_free(data);
    }
    return other;
}

#endif
