/* System calls on files below one directory, of which one can be made to fail. Preloaded, see layer.py.
 *
 * It lies below the interpreter and the native threads alike: both call these functions of the C library. Each of them
 * asks enter() what is to happen, makes the system call itself, and tells leave() how it went. Calls on other paths, and
 * on descriptors that were opened elsewhere, pass unseen.
 *
 * One name stands for a family: "open" for open, open64, openat and openat64, "pwrite" for pwrite and pwrite64, and so on.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAX_FD 4096
#define MAX_PARTS 1024

/* The numbers are known to layer.py. */
enum kind {
    NONE,
    FAIL,        /* value: the errno; the call is not made, but a close closes */
    SHORT,       /* value: the number of bytes, 0 for half of them */
    END,         /* a read says that the file ends here */
    FLIP,        /* one bit of the data is another on its way */
    SIGNAL,      /* value: a signal that the process gets just before the call */
    KILL_BEFORE,
    KILL_AFTER,
    KILL_HALF,   /* after half of the bytes */
    LATE         /* value: an errno that is told although the call succeeded */
};

typedef struct {
    const char *name;
    const char *path, *path2;
    long long offset, length;
    unsigned flags;
    uint64_t begin;
    enum kind kind;
    int value;
} call;

/* Guards everything below. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[4096];
static size_t root_length;
static const char *paths[MAX_FD];  /* of the descriptors that were opened below the root; never freed */
static uint64_t clock_;            /* steps at the begin and at the end of each call */
static char *trace;
static size_t trace_used, trace_room;
static char armed[256];            /* names with a comma before and behind each, or "" for all */
static long armed_at, armed_seen, fired;
static enum kind armed_kind;
static int armed_value, armed_lasts;

static void child_of_fork(void)
{
    pthread_mutex_init(&lock, NULL);
}

__attribute__((constructor)) static void setup(void)
{
    pthread_atfork(NULL, NULL, child_of_fork);
}

/* ---- what the tests call ---- */

void faults_root(const char *path)
{
    pthread_mutex_lock(&lock);
    root_length = strlen(path);
    memcpy(root, path, root_length + 1);
    memset(paths, 0, sizeof paths);
    pthread_mutex_unlock(&lock);
}

/* Let the at-th call from now of one of the names have the fault, or with lasts also all later ones. */
void faults_arm(const char *names, long at, int kind, int value, int lasts)
{
    pthread_mutex_lock(&lock);
    if (*names) {
        snprintf(armed, sizeof armed, ",%s,", names);
    } else {
        armed[0] = 0;
    }
    armed_at = at;
    armed_kind = (enum kind)kind;
    armed_value = value;
    armed_lasts = lasts;
    armed_seen = fired = 0;
    pthread_mutex_unlock(&lock);
}

/* Take the fault away, and tell how often it happened. */
long faults_disarm(void)
{
    long count;
    pthread_mutex_lock(&lock);
    armed_kind = NONE;
    count = fired;
    pthread_mutex_unlock(&lock);
    return count;
}

/* Calls of the armed names since faults_arm(). */
long faults_count(void)
{
    long count;
    pthread_mutex_lock(&lock);
    count = armed_seen;
    pthread_mutex_unlock(&lock);
    return count;
}

/* Give the calls since the last time, one a line in the order of their ends; free() it. */
char *faults_trace(void)
{
    char *text;
    pthread_mutex_lock(&lock);
    text = trace ? trace : calloc(1, 1);
    trace = NULL;
    trace_used = trace_room = 0;
    pthread_mutex_unlock(&lock);
    return text;
}

/* ---- what all calls share ---- */

static int inside(const char *path)
{
    return root_length > 0 && path != NULL && strncmp(path, root, root_length) == 0
           && (path[root_length] == '/' || path[root_length] == 0);
}

static const char *path_of(int fd)
{
    return fd >= 0 && fd < MAX_FD ? __atomic_load_n(&paths[fd], __ATOMIC_ACQUIRE) : NULL;
}

/* The path that a name means to a call with a directory's descriptor. */
static const char *join(int at, const char *name, char *buffer, size_t room)
{
    const char *folder = path_of(at);
    if (name == NULL || name[0] == '/' || folder == NULL) {
        return name;
    }
    snprintf(buffer, room, "%s%s%s", folder, *name ? "/" : "", name);
    return buffer;
}

static void die(void)
{
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) {
        pause();
    }
}

/* Whether the call concerns us; then c says what is to happen. */
static int enter(call *c, const char *name, const char *path, const char *path2, long long offset, long long length,
                 unsigned flags)
{
    int keep = errno;
    char wanted[64];
    *c = (call){name, path, path2, offset, length, flags, 0, NONE, 0};
    if (!inside(path) && !inside(path2)) {
        return 0;
    }
    snprintf(wanted, sizeof wanted, ",%s,", name);
    pthread_mutex_lock(&lock);
    c->begin = ++clock_;
    if (armed[0] == 0 || strstr(armed, wanted)) {
        armed_seen++;
        if (armed_kind != NONE && (armed_seen == armed_at || (armed_lasts && armed_seen > armed_at))) {
            /* A call of one byte cannot be short. */
            if (armed_kind != SHORT || (length > 1 && armed_value < length)) {
                c->kind = armed_kind;
                c->value = armed_value;
                fired++;
            }
        }
    }
    pthread_mutex_unlock(&lock);
    if (c->kind == KILL_BEFORE) {
        die();
    }
    if (c->kind == SIGNAL) {
        syscall(SYS_kill, getpid(), c->value);
    }
    errno = keep;
    return 1;
}

static void note(const call *c, long long result, int error)
{
    static const char *const kinds[] = {"-",      "fail", "short",     "end",  "flip",
                                        "signal", "kill", "killafter", "half", "late"};
    int n;
    for (;;) {
        n = snprintf(trace ? trace + trace_used : NULL, trace_room - trace_used,
                     "%llu\t%llu\t%s\t%s\t%s\t%lld\t%lld\t%u\t%lld\t%d\t%s\n", (unsigned long long)c->begin,
                     (unsigned long long)clock_, c->name, c->path ? c->path : "", c->path2 ? c->path2 : "", c->offset,
                     c->length, c->flags, result, error, kinds[c->kind]);
        if (trace_used + (size_t)n < trace_room) {
            break;
        }
        trace_room = 2 * trace_room + (size_t)n + 4096;
        trace = realloc(trace, trace_room);
        if (trace == NULL) {
            abort();
        }
    }
    trace_used += (size_t)n;
}

/* Note how the call went, and give its result; errno is that of the call. */
static long long leave(call *c, long long result)
{
    int error = result < 0 ? errno : 0;
    if (c->kind == LATE && result >= 0) {
        result = -1;
        error = c->value;
    }
    pthread_mutex_lock(&lock);
    clock_++;
    note(c, result, error);
    pthread_mutex_unlock(&lock);
    if (c->kind == KILL_AFTER || c->kind == KILL_HALF) {
        die();
    }
    errno = error ? error : errno;
    return result;
}

static long long failed(call *c)
{
    errno = c->value;
    return leave(c, -1);
}

/* ---- opening and closing ---- */

static int opened(int fd, const char *path)
{
    if (fd >= 0 && fd < MAX_FD) {
        pthread_mutex_lock(&lock);
        __atomic_store_n(&paths[fd], path ? strdup(path) : NULL, __ATOMIC_RELEASE);
        pthread_mutex_unlock(&lock);
    }
    return fd;
}

static int do_open(int at, const char *name, int flags, mode_t mode)
{
    char buffer[8192];
    const char *path = join(at, name, buffer, sizeof buffer);
    call c;
    int fd;
    if (!enter(&c, "open", path, NULL, -1, -1, (unsigned)flags)) {
        fd = (int)syscall(SYS_openat, at, name, flags, mode);
        return root_length ? opened(fd, NULL) : fd;
    }
    if (c.kind == FAIL) {
        return (int)failed(&c);
    }
    fd = opened((int)syscall(SYS_openat, at, name, flags, mode), path);
    return (int)leave(&c, fd);
}

#define MODE(flags, mode) \
    do { \
        if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) { \
            va_list list; \
            va_start(list, flags); \
            mode = (mode_t)va_arg(list, int); \
            va_end(list); \
        } \
    } while (0)

int open(const char *name, int flags, ...)
{
    mode_t mode = 0;
    MODE(flags, mode);
    return do_open(AT_FDCWD, name, flags, mode);
}

int open64(const char *name, int flags, ...)
{
    mode_t mode = 0;
    MODE(flags, mode);
    return do_open(AT_FDCWD, name, flags, mode);
}

int openat(int at, const char *name, int flags, ...)
{
    mode_t mode = 0;
    MODE(flags, mode);
    return do_open(at, name, flags, mode);
}

int openat64(int at, const char *name, int flags, ...)
{
    mode_t mode = 0;
    MODE(flags, mode);
    return do_open(at, name, flags, mode);
}

int close(int fd)
{
    const char *path = path_of(fd);
    call c;
    int result;
    if (!enter(&c, "close", path, NULL, -1, -1, 0)) {
        return (int)syscall(SYS_close, fd);
    }
    /* First, since another thread may get the number as soon as it is free. */
    opened(fd, NULL);
    result = (int)syscall(SYS_close, fd);
    return (int)(c.kind == FAIL ? failed(&c) : leave(&c, result));
}

DIR *opendir(const char *name)
{
    static DIR *(*real)(const char *);
    call c;
    DIR *found;
    if (real == NULL) {
        *(void **)&real = dlsym(RTLD_NEXT, "opendir");
    }
    if (!enter(&c, "opendir", name, NULL, -1, -1, 0)) {
        return real(name);
    }
    if (c.kind == FAIL) {
        failed(&c);
        return NULL;
    }
    found = real(name);
    leave(&c, found ? 0 : -1);
    return found;
}

/* ---- data ---- */

enum way { READ, WRITE };

/* What a transfer of some bytes does; offset -1 is the place at which the descriptor stands. */
static ssize_t raw(enum way way, int fd, const struct iovec *parts, int count, long long offset)
{
    if (offset < 0) {
        return syscall(way == READ ? SYS_readv : SYS_writev, fd, parts, (long)count);
    }
    return syscall(way == READ ? SYS_preadv : SYS_pwritev, fd, parts, (long)count, (long)offset, 0L);
}

/* A short transfer may be of any length, which a direct one would refuse: take a descriptor that is not direct. */
static ssize_t raw_short(enum way way, int fd, const struct iovec *parts, int count, long long offset, size_t n)
{
    struct iovec few[MAX_PARTS];
    char name[64];
    int used = 0, plain;
    ssize_t result;
    for (; used < count && used < MAX_PARTS && n > 0; used++) {
        few[used] = parts[used];
        few[used].iov_len = few[used].iov_len < n ? few[used].iov_len : n;
        n -= few[used].iov_len;
    }
    if (offset < 0) {
        return raw(way, fd, few, used, offset);
    }
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    plain = (int)syscall(SYS_openat, AT_FDCWD, name, (way == READ ? O_RDONLY : O_WRONLY) | O_CLOEXEC, 0);
    if (plain < 0) {
        return raw(way, fd, few, used, offset);
    }
    result = raw(way, plain, few, used, offset);
    syscall(SYS_close, plain);
    return result;
}

static ssize_t raw_flipped(enum way way, int fd, const struct iovec *parts, int count, long long offset, size_t n)
{
    struct iovec whole = {NULL, n};
    uint8_t *data;
    ssize_t result;
    if (posix_memalign(&whole.iov_base, 4096, n ? n : 1) != 0) {
        abort();
    }
    data = whole.iov_base;
    if (way == WRITE) {
        for (int i = 0; i < count; data += parts[i].iov_len, i++) {
            memcpy(data, parts[i].iov_base, parts[i].iov_len);
        }
        ((uint8_t *)whole.iov_base)[n / 2] ^= 1;
    }
    result = raw(way, fd, &whole, 1, offset);
    if (way == READ && result > 0) {
        size_t left = (size_t)result;
        data[result / 2] ^= 1;
        for (int i = 0; i < count && left > 0; i++) {
            size_t m = parts[i].iov_len < left ? parts[i].iov_len : left;
            memcpy(parts[i].iov_base, data, m);
            data += m;
            left -= m;
        }
    }
    free(whole.iov_base);
    return result;
}

static ssize_t transfer(const char *name, enum way way, int fd, const struct iovec *parts, int count, long long offset)
{
    call c;
    size_t n = 0;
    for (int i = 0; i < count; i++) {
        n += parts[i].iov_len;
    }
    if (!enter(&c, name, path_of(fd), NULL, offset, (long long)n, 0)) {
        return raw(way, fd, parts, count, offset);
    }
    switch (c.kind) {
    case FAIL:
        return (ssize_t)failed(&c);
    case END: {
        ssize_t result = raw(way, fd, parts, count, offset);
        if (result == 0) { /* it does end here: no fault */
            c.kind = NONE;
            pthread_mutex_lock(&lock);
            fired--;
            pthread_mutex_unlock(&lock);
        }
        return (ssize_t)leave(&c, result > 0 ? 0 : result);
    }
    case SHORT:
        return (ssize_t)leave(&c, raw_short(way, fd, parts, count, offset, c.value ? (size_t)c.value : n / 2));
    case KILL_HALF:
        return (ssize_t)leave(&c, raw_short(way, fd, parts, count, offset, n / 2));
    case FLIP:
        return (ssize_t)leave(&c, raw_flipped(way, fd, parts, count, offset, n));
    default:
        return (ssize_t)leave(&c, raw(way, fd, parts, count, offset));
    }
}

static ssize_t transfer_one(const char *name, enum way way, int fd, const void *data, size_t n, long long offset)
{
    struct iovec part = {(void *)data, n};
    return transfer(name, way, fd, &part, 1, offset);
}

ssize_t read(int fd, void *data, size_t n) { return transfer_one("read", READ, fd, data, n, -1); }
ssize_t write(int fd, const void *data, size_t n) { return transfer_one("write", WRITE, fd, data, n, -1); }
ssize_t readv(int fd, const struct iovec *parts, int count) { return transfer("read", READ, fd, parts, count, -1); }
ssize_t writev(int fd, const struct iovec *parts, int count) { return transfer("write", WRITE, fd, parts, count, -1); }

#define BY_POSITION(suffix) \
    ssize_t pread##suffix(int fd, void *data, size_t n, off_t offset) \
    { \
        return transfer_one("pread", READ, fd, data, n, offset); \
    } \
    ssize_t pwrite##suffix(int fd, const void *data, size_t n, off_t offset) \
    { \
        return transfer_one("pwrite", WRITE, fd, data, n, offset); \
    } \
    ssize_t preadv##suffix(int fd, const struct iovec *parts, int count, off_t offset) \
    { \
        return transfer("pread", READ, fd, parts, count, offset); \
    } \
    ssize_t pwritev##suffix(int fd, const struct iovec *parts, int count, off_t offset) \
    { \
        return transfer("pwrite", WRITE, fd, parts, count, offset); \
    }

BY_POSITION()
BY_POSITION(64)

/* Their flags only make things quicker. */
#define WITH_FLAGS(suffix) \
    ssize_t preadv##suffix(int fd, const struct iovec *parts, int count, off_t offset, int flags) \
    { \
        (void)flags; \
        return transfer("pread", READ, fd, parts, count, offset); \
    } \
    ssize_t pwritev##suffix(int fd, const struct iovec *parts, int count, off_t offset, int flags) \
    { \
        (void)flags; \
        return transfer("pwrite", WRITE, fd, parts, count, offset); \
    }

WITH_FLAGS(2)
WITH_FLAGS(64v2)

/* ---- calls that take effect or do not ---- */

/* The body of a function that makes the call `expression`, unless that is to fail. */
#define SIMPLE(name, path, path2, offset, length, flags, expression) \
    do { \
        call c; \
        if (!enter(&c, name, path, path2, offset, length, flags)) { \
            return expression; \
        } \
        return c.kind == FAIL ? failed(&c) : leave(&c, expression); \
    } while (0)

ssize_t copy_file_range(int in, off_t *in_at, int out, off_t *out_at, size_t n, unsigned flags)
{
    SIMPLE("copy", path_of(out), path_of(in), -1, (long long)n, flags,
           syscall(SYS_copy_file_range, in, in_at, out, out_at, n, flags));
}

ssize_t sendfile(int out, int in, off_t *at, size_t n)
{
    SIMPLE("copy", path_of(out), path_of(in), -1, (long long)n, 0, syscall(SYS_sendfile, out, in, at, n));
}

ssize_t sendfile64(int out, int in, off_t *at, size_t n) { return sendfile(out, in, at, n); }

static long long do_truncate(int fd, off_t n)
{
    SIMPLE("ftruncate", path_of(fd), NULL, -1, n, 0, syscall(SYS_ftruncate, fd, n));
}

int ftruncate(int fd, off_t n) { return (int)do_truncate(fd, n); }
int ftruncate64(int fd, off_t n) { return (int)do_truncate(fd, n); }

static long long do_allocate(int fd, int mode, off_t offset, off_t n)
{
    SIMPLE("fallocate", path_of(fd), NULL, offset, n, (unsigned)mode, syscall(SYS_fallocate, fd, mode, offset, n));
}

int fallocate(int fd, int mode, off_t offset, off_t n) { return (int)do_allocate(fd, mode, offset, n); }
int fallocate64(int fd, int mode, off_t offset, off_t n) { return (int)do_allocate(fd, mode, offset, n); }
int posix_fallocate(int fd, off_t offset, off_t n) { return do_allocate(fd, 0, offset, n) < 0 ? errno : 0; }
int posix_fallocate64(int fd, off_t offset, off_t n) { return do_allocate(fd, 0, offset, n) < 0 ? errno : 0; }

static long long do_sync(const char *name, int fd, long number)
{
    SIMPLE(name, path_of(fd), NULL, -1, -1, 0, syscall(number, fd));
}

int fsync(int fd) { return (int)do_sync("fsync", fd, SYS_fsync); }
int fdatasync(int fd) { return (int)do_sync("fdatasync", fd, SYS_fdatasync); }
int syncfs(int fd) { return (int)do_sync("syncfs", fd, SYS_syncfs); }

int sync_file_range(int fd, off_t offset, off_t n, unsigned flags)
{
    SIMPLE("sync_file_range", path_of(fd), NULL, offset, n, flags, (int)syscall(SYS_sync_file_range, fd, offset, n, flags));
}

static long long do_rename(int at, const char *old, int to, const char *new, unsigned flags, const char *name)
{
    char one[8192], two[8192];
    SIMPLE(name, join(at, old, one, sizeof one), join(to, new, two, sizeof two), -1, -1, flags,
           syscall(SYS_renameat2, at, old, to, new, flags));
}

int rename(const char *old, const char *new) { return (int)do_rename(AT_FDCWD, old, AT_FDCWD, new, 0, "rename"); }

int renameat(int at, const char *old, int to, const char *new)
{
    return (int)do_rename(at, old, to, new, 0, "rename");
}

int renameat2(int at, const char *old, int to, const char *new, unsigned flags)
{
    return (int)do_rename(at, old, to, new, flags, "renameat2");
}

static long long do_link(int at, const char *old, int to, const char *new, int flags)
{
    char one[8192], two[8192];
    SIMPLE("link", join(at, old, one, sizeof one), join(to, new, two, sizeof two), -1, -1, (unsigned)flags,
           syscall(SYS_linkat, at, old, to, new, flags));
}

int link(const char *old, const char *new) { return (int)do_link(AT_FDCWD, old, AT_FDCWD, new, 0); }
int linkat(int at, const char *old, int to, const char *new, int flags) { return (int)do_link(at, old, to, new, flags); }

static long long do_unlink(int at, const char *path, int flags)
{
    char buffer[8192];
    SIMPLE(flags & AT_REMOVEDIR ? "rmdir" : "unlink", join(at, path, buffer, sizeof buffer), NULL, -1, -1, 0,
           syscall(SYS_unlinkat, at, path, flags));
}

int unlink(const char *path) { return (int)do_unlink(AT_FDCWD, path, 0); }
int unlinkat(int at, const char *path, int flags) { return (int)do_unlink(at, path, flags); }
int rmdir(const char *path) { return (int)do_unlink(AT_FDCWD, path, AT_REMOVEDIR); }

int remove(const char *path)
{
    int result = unlink(path);
    return result < 0 && errno == EISDIR ? rmdir(path) : result;
}

static long long do_mkdir(int at, const char *path, mode_t mode)
{
    char buffer[8192];
    SIMPLE("mkdir", join(at, path, buffer, sizeof buffer), NULL, -1, -1, mode, syscall(SYS_mkdirat, at, path, mode));
}

int mkdir(const char *path, mode_t mode) { return (int)do_mkdir(AT_FDCWD, path, mode); }
int mkdirat(int at, const char *path, mode_t mode) { return (int)do_mkdir(at, path, mode); }

static long long do_chmod(int at, const char *path, mode_t mode)
{
    char buffer[8192];
    SIMPLE("chmod", join(at, path, buffer, sizeof buffer), NULL, -1, -1, mode, syscall(SYS_fchmodat, at, path, mode));
}

int chmod(const char *path, mode_t mode) { return (int)do_chmod(AT_FDCWD, path, mode); }

int fchmodat(int at, const char *path, mode_t mode, int flags)
{
    if (flags != 0) {
        errno = ENOTSUP;
        return -1;
    }
    return (int)do_chmod(at, path, mode);
}

int fchmod(int fd, mode_t mode)
{
    SIMPLE("chmod", path_of(fd), NULL, -1, -1, mode, (int)syscall(SYS_fchmod, fd, mode));
}

static long long set_flags(int fd, long flags)
{
    SIMPLE("setfl", path_of(fd), NULL, -1, -1, (unsigned)flags, syscall(SYS_fcntl, fd, F_SETFL, flags));
}

#define FCNTL(name) \
    int name(int fd, int command, ...) \
    { \
        va_list list; \
        long argument; \
        va_start(list, command); \
        argument = va_arg(list, long); \
        va_end(list); \
        return (int)(command == F_SETFL ? set_flags(fd, argument) : syscall(SYS_fcntl, fd, command, argument)); \
    }

FCNTL(fcntl)
FCNTL(fcntl64)

/* ---- looking ---- */

static long long do_stat(int at, const char *path, void *found, int flags)
{
    char buffer[8192];
    SIMPLE("stat", join(at, path, buffer, sizeof buffer), NULL, -1, -1, (unsigned)flags,
           syscall(SYS_newfstatat, at, path, found, flags));
}

static long long do_fstat(int fd, void *found)
{
    SIMPLE("stat", path_of(fd), NULL, -1, -1, 0, syscall(SYS_fstat, fd, found));
}

/* Both structures are the kernel's where words have 64 bits. */
#define STAT(suffix) \
    int stat##suffix(const char *path, struct stat##suffix *found) { return (int)do_stat(AT_FDCWD, path, found, 0); } \
    int lstat##suffix(const char *path, struct stat##suffix *found) \
    { \
        return (int)do_stat(AT_FDCWD, path, found, AT_SYMLINK_NOFOLLOW); \
    } \
    int fstatat##suffix(int at, const char *path, struct stat##suffix *found, int flags) \
    { \
        return (int)do_stat(at, path, found, flags); \
    } \
    int fstat##suffix(int fd, struct stat##suffix *found) { return (int)do_fstat(fd, found); }

STAT()
STAT(64)
