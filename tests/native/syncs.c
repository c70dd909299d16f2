/* Which way several files are forced to a disk that is quick, then slow, then quick again. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static long pause_ns;      /* how long the disk takes for a flush */
static int inside, most;   /* atomic: how many wait for it, now and at most */

static int slow_sync(int fd)
{
    struct timespec pause = {0, pause_ns};
    int now = __atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST), seen = __atomic_load_n(&most, __ATOMIC_SEQ_CST);
    while (now > seen && !__atomic_compare_exchange_n(&most, &seen, now, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
    if (pause_ns > 0) {
        nanosleep(&pause, NULL);
    }
    __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
    return fd < 0 ? (errno = EBADF, -1) : 0;
}

#define fdatasync slow_sync
#define fsync slow_sync
#include "file_sync.h"

/* The most that waited at the same time. */
static int sync_some(size_t count)
{
    int fds[8] = {0, -1, 0, 0, 0, 0, 0, -1}, codes[8];
    most = 0;
    jc_sync_files(fds, codes, count);
    for (size_t i = 0; i < count; i++) {
        CHECK(codes[i] == (fds[i] < 0 ? EBADF : 0));
    }
    return most;
}

int main(void)
{
    CHECK(sync_some(1) == 1);
    CHECK(sync_some(2) == 1);
    pause_ns = 20000000;
    CHECK(sync_some(1) == 1 && !jc_sync_slow); /* of one alone nobody knows what took the time */
    CHECK(sync_some(2) == 1); /* and sees that it is slow */
    CHECK(sync_some(2) == 2);
    CHECK(sync_some(4) == 4);
    CHECK(sync_some(8) == 8);
    pause_ns = 0;
    sync_some(2); /* sees that it is quick, sooner or later: beginning the threads may take long on a busy machine */
    for (int i = 0; i < 100 && jc_sync_slow; i++) {
        sync_some(2);
    }
    CHECK(sync_some(2) == 1);
    puts("well");
    return 0;
}
