/* Reading a zip container by its layout: large payloads first, then all that is small, each by several threads.
 *
 * Headers, documents and small payloads are compared with what they must be as they come; where a byte differs the whole
 * read fails, and the caller looks for the reason with slower means. Large payloads come first because they are what takes
 * time, and because what lies between them comes into the page cache with them.
 *
 * Nothing here touches Python. Functions return 0, an errno, JC_END_OF_FILE or JC_DIFFERS.
 */
#ifndef JOBCORE_FAST_ZIP_SCAN_H
#define JOBCORE_FAST_ZIP_SCAN_H

#include "chunk_io.h"
#include "crew.h"
#include "zip_layout.h"

#define JC_WINDOW ((uint64_t)256 << 10) /* small entries that lie side by side are read by one call, and stay in the cache */
#define JC_SHARE ((uint64_t)1 << 20)    /* of a file of small blobs, what a thread takes at a time */

#define JC_JOB_BYTES ((uint64_t)512 << 20) /* small blobs that are read in one go, without a look for signals */

/* What to read: a blob that is not encoded, and the memory of all its bytes, or NULL to check it only. */
typedef struct {
    size_t blob;
    uint8_t *target;
} jc_wanted;

typedef struct {
    const jc_layout *l;
    int fd;
    int threads;
    int fresh;                  /* nobody has touched the memory of what is wanted */
    const jc_wanted *wanted;    /* in the order of the file */
    size_t count;
    size_t share;               /* blobs in each part that a thread takes; more of them where they are small */
    size_t next;                /* first blob that nobody has taken; only by atomic steps */
    int error;                  /* the first failure; only by atomic steps */
} jc_scan;

/* The bytes of a file that one thread looks at. */
typedef struct {
    int fd;
    jc_buffer bytes;
    uint64_t start;
    uint64_t ahead;             /* up to where small entries follow that will be wanted */
    jc_buffer text;
} jc_window;

/* Bytes of the file that are to be looked at; good until the next call. */
static int jc_window_get(jc_window *w, uint64_t offset, uint64_t n, const uint8_t **data)
{
    uint64_t have = w->start + w->bytes.used;
    if (w->bytes.used == 0 || offset < w->start || offset + n > have) {
        uint64_t most = w->ahead > offset ? w->ahead - offset : 0;
        uint64_t size = most < JC_WINDOW ? most : JC_WINDOW;
        int64_t at = (int64_t)offset;
        int failed;
        size = size < n ? n : size;
        w->bytes.used = 0;
        w->start = offset;
        if (jc_grow(&w->bytes, (size_t)size) == NULL) {
            return ENOMEM;
        }
        failed = size ? jc_read_in(w->fd, w->bytes.data, (size_t)size, &at) : 0;
        if (failed) {
            w->bytes.used = 0;
            return failed;
        }
    }
    *data = w->bytes.data + (offset - w->start);
    return 0;
}

/* Check one blob, and fill it where its chunks are small. */
static int jc_scan_blob(const jc_scan *s, jc_window *w, const jc_wanted *wanted)
{
    const jc_layout *l = s->l;
    const jc_place *b = &l->blobs[wanted->blob];
    const jc_spec *spec = b->spec;
    int small = spec->chunk_bytes < JC_LARGE;
    uint8_t header[JC_MAX_HEADER];
    uint64_t offset = b->offset;
    const uint8_t *data;
    jc_entry e;
    size_t head;
    int failed;
    jc_layout_key(l, b, &e);
    for (uint64_t chunk = 0; chunk < spec->chunks; chunk++) {
        uint32_t sum = l->sums[b->first + chunk];
        jc_layout_chunk(b, &e, chunk, offset);
        head = jc_header_bytes(&e, l->wide);
        failed = jc_window_get(w, offset, small ? head + e.size : head, &data);
        if (failed) {
            return failed;
        }
        jc_local_header(header, &e, sum, l->wide);
        if (memcmp(data, header, head) != 0) {
            return JC_DIFFERS;
        }
        if (small) {
            uint64_t at = chunk * spec->chunk_bytes;
            uint64_t room = spec->bytes - at < spec->chunk_bytes ? spec->bytes - at : spec->chunk_bytes;
            if (jc_crc32_update(0, data + head, (size_t)e.size) != sum) {
                return JC_DIFFERS;
            }
            if (wanted->target != NULL) {
                memcpy(wanted->target + at, data + head, (size_t)room);
            }
        }
        offset += head + e.size;
    }
    jc_layout_document(b, &e, offset);
    head = jc_header_bytes(&e, l->wide);
    failed = jc_window_get(w, offset, head + e.size, &data);
    if (failed) {
        return failed;
    }
    jc_local_header(header, &e, b->document_sum, l->wide);
    return memcmp(data, header, head) != 0 || !jc_is_document(b, data + head, &w->text) ? JC_DIFFERS : 0;
}

/* Up to where entries lie side by side, none of them large, from one of the blobs on; the last of them is not beyond `stop`. */
static uint64_t jc_scan_ahead(const jc_scan *s, size_t i, size_t stop)
{
    const jc_layout *l = s->l;
    uint64_t ahead = l->blobs[s->wanted[i].blob].offset;
    for (size_t j = i; j < stop && l->blobs[s->wanted[j].blob].spec->chunk_bytes < JC_LARGE
                       && (j == i || s->wanted[j].blob == s->wanted[j - 1].blob + 1); j++) {
        ahead = s->wanted[j].blob + 1 < l->count ? l->blobs[s->wanted[j].blob + 1].offset : l->end;
    }
    return ahead;
}

static void *jc_scan_shares(void *argument)
{
    jc_scan *s = argument;
    jc_window w;
    int failed = 0;
    memset(&w, 0, sizeof w);
    w.fd = s->fd;
    while (!failed && !__atomic_load_n(&s->error, __ATOMIC_RELAXED)) {
        size_t i = __atomic_fetch_add(&s->next, s->share, __ATOMIC_RELAXED);
        size_t stop = s->share < s->count - (i < s->count ? i : s->count) ? i + s->share : s->count;
        if (i >= s->count) {
            break;
        }
        w.ahead = 0;
        for (; i < stop && !failed; i++) {
            if (w.ahead <= s->l->blobs[s->wanted[i].blob].offset) {
                w.ahead = jc_scan_ahead(s, i, stop);
            }
            failed = jc_scan_blob(s, &w, &s->wanted[i]);
        }
    }
    if (failed) {
        /* Threads may fail at once; any of the reasons will do. */
        __atomic_store_n(&s->error, failed, __ATOMIC_RELAXED);
    }
    jc_buffer_free(&w.bytes);
    jc_buffer_free(&w.text);
    return NULL;
}

/* Read the payloads of large chunks. */
static int jc_scan_large(const jc_scan *s)
{
    const jc_layout *l = s->l;
    jc_buffer all = {NULL, 0, 0};
    jc_chunk *chunks;
    size_t count = 0;
    int failed = 0;
    for (size_t i = 0; i < s->count; i++) {
        const jc_place *b = &l->blobs[s->wanted[i].blob];
        const jc_spec *spec = b->spec;
        uint8_t *target = s->wanted[i].target;
        for (uint64_t chunk = 0; spec->chunk_bytes >= JC_LARGE && chunk < spec->chunks; chunk++) {
            uint64_t at = chunk * spec->chunk_bytes;
            uint64_t room = spec->bytes - at < spec->chunk_bytes ? spec->bytes - at : spec->chunk_bytes;
            jc_chunk one = {(int64_t)l->places[b->first + chunk], spec->chunk_bytes, target == NULL ? NULL : target + at,
                            target == NULL ? 0 : room, 0, 0, 0};
            if (jc_put(&all, &one, sizeof one)) {
                jc_buffer_free(&all);
                return ENOMEM;
            }
            count++;
        }
    }
    chunks = (jc_chunk *)all.data;
    failed = count ? jc_read_chunks(s->fd, chunks, count, s->threads, s->fresh) : 0;
    for (size_t i = 0, k = 0; i < s->count && !failed && k < count; i++) {
        const jc_place *b = &l->blobs[s->wanted[i].blob];
        for (uint64_t c = 0; b->spec->chunk_bytes >= JC_LARGE && c < b->spec->chunks && !failed; c++, k++) {
            failed = chunks[k].error ? chunks[k].error : chunks[k].crc != l->sums[b->first + c] ? JC_DIFFERS : 0;
        }
    }
    jc_buffer_free(&all);
    return failed;
}

/* Divide what is to be looked at; how many shares there are. */
static size_t jc_scan_divide(jc_scan *s)
{
    const jc_layout *l = s->l;
    uint64_t bytes;
    size_t shares;
    s->next = 0;
    s->error = 0;
    if (s->count == 0) {
        return 0;
    }
    bytes = l->blobs[s->wanted[s->count - 1].blob].offset - l->blobs[s->wanted[0].blob].offset;
    shares = (size_t)(bytes / JC_SHARE) + 1;
    s->share = (s->count + shares - 1) / shares;
    s->share = s->share < 16 ? 16 : s->share;
    return (s->count + s->share - 1) / s->share;
}

/* Read blobs, given in the order of the file. */
static int jc_scan_all(jc_scan *s)
{
    size_t shares = jc_scan_divide(s);
    int failed = jc_scan_large(s);
    if (failed || shares == 0) {
        return failed;
    }
    jc_run_crew(jc_scan_shares, s, (size_t)s->threads < shares ? (size_t)s->threads : shares);
    return s->error;
}

/* ---- layout, comparison and all small blobs, in a thread of its own ---- */

typedef struct {
    jc_layout *l;
    const jc_name *names;
    const uint32_t *spec;
    const jc_spec *specs;
    size_t count;
    const jc_long_key *keys;
    size_t key_count;
    const uint8_t *index;       /* a central directory to be compared, or NULL */
    size_t index_bytes;
    int fd;                     /* what small blobs are read of, or -1 */
    uint8_t *const *targets;    /* memory of each blob */
    int failed;                 /* result: 0 when there is a layout and the index is the one that it implies */
    size_t root_at;             /* result: where the header of the root starts in the index */
    int small;                  /* result: whether small blobs are read, unless scan.error says otherwise */
    jc_scan scan;
    jc_wanted *wanted;
    int running;
    pthread_t thread;
    pthread_mutex_t lock;       /* guards laid, and what is a result while the thread runs */
    pthread_cond_t changed;
    int laid;                   /* the results are there, and shares may be taken */
} jc_job;

/* Make ready to read the small blobs, if they are few enough to be read in one go. */
static void jc_job_divide(jc_job *job)
{
    const jc_layout *l = job->l;
    uint64_t bytes = 0;
    size_t count = 0;
    for (size_t i = 0; i < l->count; i++) {
        const jc_spec *spec = l->blobs[i].spec;
        if (spec->chunk_bytes < JC_LARGE) {
            bytes += spec->bytes + 1024;
            count++;
        }
    }
    if (count == 0 || bytes > JC_JOB_BYTES) {
        return;
    }
    job->wanted = malloc(count * sizeof *job->wanted);
    if (job->wanted == NULL) {
        return; /* they are read later, or fail there */
    }
    count = 0;
    for (size_t i = 0; i < l->count; i++) {
        if (l->blobs[i].spec->chunk_bytes < JC_LARGE) {
            job->wanted[count++] = (jc_wanted){i, job->targets[i]};
        }
    }
    job->scan = (jc_scan){l, job->fd, 0, 1, job->wanted, count, 0, 0, 0};
    jc_scan_divide(&job->scan);
    job->small = 1;
}

static void *jc_job_run(void *argument)
{
    jc_job *job = argument;
    jc_layout *l = job->l;
    job->failed = jc_layout_all(l, job->names, job->spec, job->specs, job->count, job->keys, job->key_count);
    if (!job->failed) {
        const jc_place *last = l->count ? &l->blobs[l->count - 1] : NULL;
        job->failed = (last ? last->first + last->spec->chunks : 0) == l->chunks && l->sized == 0 ? 0 : JC_DIFFERS;
    }
    if (!job->failed && job->index != NULL) {
        job->failed = jc_layout_compare(l, job->index, job->index_bytes, &job->root_at);
    }
    if (!job->failed && job->fd >= 0) {
        jc_job_divide(job);
    }
    pthread_mutex_lock(&job->lock);
    job->laid = 1;
    pthread_cond_broadcast(&job->changed);
    pthread_mutex_unlock(&job->lock);
    if (job->small) {
        jc_scan_shares(&job->scan);
    }
    return NULL;
}

static void jc_job_make(jc_job *job)
{
    memset(job, 0, sizeof *job);
    job->fd = -1;
    pthread_mutex_init(&job->lock, NULL);
    pthread_cond_init(&job->changed, NULL);
}

/* Begin it; where no thread can start it is done at once. */
static void jc_job_begin(jc_job *job)
{
    job->running = jc_start_thread(&job->thread, jc_job_run, job) == 0;
    if (!job->running) {
        jc_job_run(job);
    }
}

/* Help with it, and wait for its end. */
static void jc_job_finish(jc_job *job)
{
    if (job->running) {
        pthread_mutex_lock(&job->lock);
        while (!job->laid) {
            pthread_cond_wait(&job->changed, &job->lock);
        }
        pthread_mutex_unlock(&job->lock);
        if (job->small) {
            jc_scan_shares(&job->scan);
        }
        pthread_join(job->thread, NULL);
        job->running = 0;
    }
}

static void jc_job_free(jc_job *job)
{
    jc_job_finish(job);
    free(job->wanted);
    pthread_mutex_destroy(&job->lock);
    pthread_cond_destroy(&job->changed);
}

#endif
