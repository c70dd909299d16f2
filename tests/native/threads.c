/* Drives the native threads of chunk_io.h and arena.h without an interpreter: by test_native_threads.py as it is, and by
 * .ci/sanitize under the thread sanitizer, which knows every access and every lock of such a program.
 *
 *     threads FOLDER
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#define JC_SYNC_BYTES ((uint64_t)1 << 20) /* small, so that syncs on the way meet all else */

#include "arena.h"
#include "chunk_io.h"

#include "check.h"

#define FILES 3
#define READERS 3
#define BLOCK ((size_t)64 << 10)
#define SIZE ((size_t)9 << 20)

static const char *folder;

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

static uint8_t *random_bytes(size_t n, uint32_t seed)
{
    uint8_t *data = malloc(n);
    CHECK(data != NULL);
    for (size_t i = 0; i < n; i++) {
        data[i] = (uint8_t)next_random(&seed);
    }
    return data;
}

static int open_new(int number, char *path, size_t room)
{
    int fd;
    snprintf(path, room, "%s/%d", folder, number);
    fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(fd >= 0);
    return fd;
}

/* ---- a file written by one writer, and read by several readers at once ---- */

typedef struct {
    int fd;
    const uint8_t *data;
} file;

static void *read_all(void *argument)
{
    const file *f = argument;
    uint8_t *found = malloc(SIZE);
    jc_chunk chunks[64];
    size_t count = 0, at = 0;
    uint32_t seed = 99;
    CHECK(found != NULL);
    while (at < SIZE) {
        size_t n = 1 + next_random(&seed) % (6 << 20);
        CHECK(count < 64);
        n = n < SIZE - at ? n : SIZE - at;
        /* The end of each third chunk is only summed. */
        chunks[count] = (jc_chunk){(int64_t)at, n, found + at, count % 3 == 2 ? n / 2 : n, 0, 0, 0};
        at += n;
        count++;
    }
    CHECK(jc_read_chunks(f->fd, chunks, count, 4, (int)(count % 2)) == 0);
    for (size_t i = 0; i < count; i++) {
        const uint8_t *expected = f->data + chunks[i].offset;
        CHECK(chunks[i].error == 0);
        CHECK(chunks[i].crc == jc_crc32_update(0, expected, chunks[i].size));
        CHECK(memcmp(chunks[i].target, expected, chunks[i].room) == 0);
    }
    free(found);
    return NULL;
}

static void *write_and_read(void *argument)
{
    int number = (int)(intptr_t)argument;
    char path[4096];
    file f = {open_new(number, path, sizeof path), random_bytes(SIZE, (uint32_t)number + 1)};
    jc_writer *w = jc_writer_new(f.fd, BLOCK, 6, 3, number % 2);
    pthread_t readers[READERS];
    uint32_t seed = (uint32_t)number + 7, crc = 0;
    size_t at = 0;
    CHECK(w != NULL);
    while (at < SIZE) {
        size_t n = 1 + next_random(&seed) % (3 * BLOCK), held = next_random(&seed) % 200;
        n = n < SIZE - at ? n : SIZE - at;
        held = held < n ? held : 0;
        CHECK(jc_writer_reserve(w, held) == 0);
        if (held > 0 && next_random(&seed) % 2) { /* at once, or when its block is left already */
            CHECK(jc_writer_fill(w, (int64_t)at, f.data + at, held) == 0);
            CHECK(jc_writer_append(w, f.data + at + held, n - held, &crc) == 0);
        } else {
            CHECK(jc_writer_append(w, f.data + at + held, n - held, &crc) == 0);
            CHECK(held == 0 || jc_writer_fill(w, (int64_t)at, f.data + at, held) == 0);
        }
        at += n;
    }
    CHECK(jc_writer_finish(w) == 0);
    jc_writer_free(w);
    CHECK(lseek(f.fd, 0, SEEK_END) == (off_t)SIZE);
    for (int i = 0; i < READERS; i++) {
        CHECK(pthread_create(&readers[i], NULL, read_all, &f) == 0);
    }
    for (int i = 0; i < READERS; i++) {
        pthread_join(readers[i], NULL);
    }
    close(f.fd);
    unlink(path);
    free((void *)f.data);
    return NULL;
}

/* ---- errors, and writers that are given up ---- */

static void fail_and_give_up(void)
{
    char path[4096];
    uint8_t *data = random_bytes(SIZE, 5);
    uint32_t crc = 0;
    int fd = open_new(90, path, sizeof path), read_only = open(path, O_RDONLY);
    jc_writer *w = jc_writer_new(read_only, BLOCK, 4, 3, 0);
    CHECK(w != NULL);
    /* Nobody waits for ever for a block that cannot be written. */
    CHECK(jc_writer_append(w, data, SIZE, &crc) == EBADF);
    CHECK(jc_writer_finish(w) == EBADF);
    jc_writer_free(w);
    for (int i = 0; i < 20; i++) { /* with blocks under way */
        w = jc_writer_new(fd, BLOCK, 8, 3, i % 2);
        CHECK(w != NULL);
        CHECK(jc_writer_append(w, data, 7 * BLOCK, &crc) == 0);
        jc_writer_free(w);
    }
    {
        jc_chunk chunks[4];
        CHECK(ftruncate(fd, 0) == 0);
        for (int i = 0; i < 4; i++) {
            chunks[i] = (jc_chunk){i, (uint64_t)5 << 20, NULL, 0, 0, 0, 0};
        }
        CHECK(jc_read_chunks(fd, chunks, 4, 4, 0) == 0);
        for (int i = 0; i < 4; i++) {
            CHECK(chunks[i].error == JC_END_OF_FILE);
        }
    }
    close(read_only);
    close(fd);
    unlink(path);
    free(data);
}

/* ---- an arena: filled by several threads, and written by several ---- */

static void copy_and_write(void)
{
    char path[4096];
    size_t room = 6 * JC_HUGE;
    uint8_t *data = random_bytes(SIZE, 11), *arena = jc_arena_map(room);
    jc_copy copies[3];
    jc_file written;
    CHECK(arena != NULL);
    for (int i = 0; i < 3; i++) {
        size_t third = SIZE / 3;
        copies[i] = (jc_copy){arena + third * (size_t)i, data + third * (size_t)i, third, 0, 0};
    }
    CHECK(jc_copy_all(copies, 3, 4) == 0);
    for (int i = 0; i < 3; i++) {
        CHECK(copies[i].crc == jc_crc32_update(0, copies[i].source, copies[i].size));
    }
    for (int direct = 0; direct < 2; direct++) {
        int fd = open_new(91 + direct, path, sizeof path);
        file f = {fd, data};
        CHECK(jc_write_arena(fd, arena, SIZE - 5, (uint64_t)1 << 20, 4, direct, &written) == 0);
        CHECK(lseek(fd, 0, SEEK_END) == (off_t)SIZE - 5);
        CHECK(pwrite(fd, data + SIZE - 5, 5, (off_t)SIZE - 5) == 5);
        read_all(&f);
        close(fd);
        unlink(path);
    }
    munmap(arena, room);
    free(data);
}

int main(int count, char **arguments)
{
    pthread_t threads[FILES];
    CHECK(count == 2);
    folder = arguments[1];
    jc_crc32_setup();
    for (intptr_t i = 0; i < FILES; i++) {
        CHECK(pthread_create(&threads[i], NULL, write_and_read, (void *)i) == 0);
    }
    for (int i = 0; i < FILES; i++) {
        pthread_join(threads[i], NULL);
    }
    fail_and_give_up();
    copy_and_write();
    puts("well");
    return 0;
}
