/* Drives program.h and the kernels without an interpreter: by test_native_program.py as it is, and by .ci/sanitize under
 * the thread sanitizer.
 *
 *     program
 *
 * Threads run one loop each: they share a counter, and a scalar that all of them copy; while the main thread gives the
 * blobs of their slots other memory, as Python does, and at the end tells the endless ones to stop.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <sched.h>

#include "kernels.h"

#include "check.h"

#define THREADS 4
#define ROUNDS 60000
#define MOVES 3000

/* A blob: where its value is, and the version that says so. */
typedef struct {
    int64_t version;
    int64_t *value;
} cell;

enum { SHARED, COUNTED, BEFORE, SEEN, LEFT, OVER, SUM, ONE, SLOTS };

typedef struct {
    cell *shared, *counted;        /* of all threads */
    cell own[SLOTS];
    int64_t values[SLOTS];
    const int32_t *cancelled;
    int answer;
    int64_t declined;
    const jc_op *code;
} worker;

/* What blobs hold moves between two places, so that an old one may still be read by who has not looked yet. */
static int64_t places[2], counters[1];
static pthread_mutex_t gil = PTHREAD_MUTEX_INITIALIZER;

static jc_kernel kernel_of(const char *type)
{
    for (size_t i = 0; i < JC_KERNEL_COUNT; i++) {
        if (strcmp(jc_kernels[i].type, type) == 0) {
            return jc_kernels[i].kernel;
        }
    }
    fprintf(stderr, "no kernel %s\n", type);
    exit(1);
}

static void bind(jc_slot *slot, cell *of, int32_t type)
{
    slot->version = &of->version;
    slot->seen = of->version;
    slot->data = of->value;
    slot->type = type;
    slot->writable = type;
}

static void bind_all(jc_frame *f, worker *w)
{
    static const int32_t types[SLOTS] = {JC_INT64, JC_COUNTER, JC_INT64, JC_INT64,
                                          JC_COUNTER, JC_BOOL, JC_INT64, JC_INT64};
    pthread_mutex_lock(&gil);
    for (int i = 0; i < SLOTS; i++) {
        bind(&f->slots[i], i == SHARED ? w->shared : i == COUNTED ? w->counted : &w->own[i], types[i]);
    }
    pthread_mutex_unlock(&gil);
}

static void *run(void *argument)
{
    worker *w = argument;
    jc_slot slots[SLOTS];
    int64_t regs[1] = {0}, last = 0;
    jc_frame f;
    memset(slots, 0, sizeof slots);
    memset(&f, 0, sizeof f);
    for (int i = 0; i < SLOTS; i++) {
        slots[i].version = &jc_unbound;
    }
    f.ops = w->code;
    f.slots = slots;
    f.regs = regs;
    f.cancelled = w->cancelled;
    for (;;) {
        w->answer = jc_run(&f, 500);
        if (w->answer == JC_DECLINE) {
            w->declined++;
            bind_all(&f, w);
        } else if (w->answer != JC_SPENT) {
            return NULL;
        }
        /* Only ever set to higher numbers: a torn or invented value would go down, or too far up. */
        CHECK(w->values[SEEN] >= last && w->values[SEEN] <= MOVES);
        last = w->values[SEEN];
        CHECK(w->values[SUM] <= ROUNDS);
    }
}

int main(void)
{
    static const int32_t count[] = {COUNTED, BEFORE}, copy[] = {SHARED, SEEN}, add[] = {SUM, ONE, SUM},
                         down[] = {LEFT, OVER}, over[] = {OVER};
    jc_op code[] = {
        {.code = JC_CODE_SET, .reg = 0, .constant_type = JC_INT64, .constant = 0},
        {.code = JC_CODE_COUNT, .inputs = 1, .outputs = 1, .slots = count, .constant = 1},
        {.code = JC_CODE_OP, .inputs = 1, .outputs = 1, .slots = copy, .kernel = kernel_of("Copy")},
        {.code = JC_CODE_OP, .inputs = 2, .outputs = 1, .slots = add, .kernel = kernel_of("Add")},
        {.code = JC_CODE_COUNT, .inputs = 1, .outputs = 1, .slots = down, .constant = -1},
        {.code = JC_CODE_IF_TRUE, .target = 7, .inputs = 1, .slots = over},
        {.code = JC_CODE_NEXT, .target = 1, .reg = 0},
        {.code = JC_CODE_END},
    };
    /* The same without an end: only the order to stop leads out. */
    jc_op endless[sizeof code / sizeof *code];
    int32_t cancelled = 0;
    cell shared = {1, &places[0]}, counted = {1, &counters[0]};
    worker workers[THREADS + 1];
    pthread_t threads[THREADS + 1];
    for (size_t i = 0; i < sizeof code / sizeof *code; i++) {
        for (int k = 0; k < 2 && k < code[i].inputs + code[i].outputs; k++) {
            code[i].near[k] = code[i].slots[k] * (int64_t)sizeof(jc_slot);
        }
    }
    memcpy(endless, code, sizeof code);
    endless[5].code = JC_CODE_JUMP;
    endless[5].target = 6;
    for (int i = 0; i < THREADS + 1; i++) {
        worker *w = &workers[i];
        memset(w, 0, sizeof *w);
        w->shared = &shared;
        w->counted = &counted;
        w->cancelled = &cancelled;
        w->code = i == THREADS ? endless : code;
        w->values[LEFT] = ROUNDS - 1;
        w->values[ONE] = i < THREADS;
        for (int k = 0; k < SLOTS; k++) {
            w->own[k].version = 1;
            w->own[k].value = &w->values[k];
        }
        if (i == THREADS) {
            /* It counts for itself. */
            w->counted = &w->own[LEFT];
        }
        CHECK(pthread_create(&threads[i], NULL, run, w) == 0);
    }
    for (int64_t n = 1; n <= MOVES; n++) {
        pthread_mutex_lock(&gil);
        if (n % 3) {
            __atomic_store_n(shared.value, n, __ATOMIC_RELAXED);
        } else {
            /* Other memory, then the version: who comes later sees both, or declines. */
            int64_t *other = shared.value == &places[0] ? &places[1] : &places[0];
            __atomic_store_n(other, n, __ATOMIC_RELAXED);
            shared.value = other;
            __atomic_store_n(&shared.version, shared.version + 1, __ATOMIC_RELAXED);
        }
        pthread_mutex_unlock(&gil);
        if (n % 50 == 0) {
            sched_yield();
        }
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK(workers[i].answer == JC_END);
        CHECK(workers[i].values[SUM] == ROUNDS);
        CHECK(workers[i].values[LEFT] == -1);
        CHECK(workers[i].declined > 0);
    }
    CHECK(counters[0] == (int64_t)THREADS * ROUNDS);
    __atomic_store_n(&cancelled, 1, __ATOMIC_RELAXED);
    CHECK(pthread_join(threads[THREADS], NULL) == 0);
    CHECK(workers[THREADS].answer == JC_CANCELLED);
    puts("well");
    return 0;
}
