/* Drives the ops on tensors without an interpreter: by test_native_program.py as it is, and by .ci/sanitize under the
 * sanitizers.
 *
 *     tensors
 *
 * Threads run one program each on common tensors, in which all items are equal: copies there and back, so that locks are
 * wanted in either order, and arithmetic from and to both. Half of a tensor would show as items that differ.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>

#include "kernels.h"

#include "check.h"

#define THREADS 4
#define ROUNDS 20000
#define ITEMS 96

enum { A, B, ONE, LESS, SLOTS };

static int64_t items[2][ITEMS], one = 1, version = 1;
static uint8_t less[ITEMS];
static int32_t busy[SLOTS];
static npy_intp dims[] = {ITEMS};
/* What tells two dtypes apart is only their address. */
static PyArray_Descr *const dtypes[] = {(PyArray_Descr *)&items, (PyArray_Descr *)&less};
static int32_t marks[] = {1};

static jc_kernel kernel_of(const char *type)
{
    for (size_t i = 0; i < JC_KERNEL_COUNT; i++) {
        if (strcmp(jc_kernels[i].type, type) == 0) {
            CHECK(jc_kernels[i].tensors);
            return jc_kernels[i].kernel;
        }
    }
    fprintf(stderr, "no kernel %s\n", type);
    exit(1);
}

static void *run(void *argument)
{
    static const int32_t there[] = {A, B}, back[] = {B, A}, add[] = {A, ONE, B}, sub[] = {ONE, B, A}, neg[] = {A, A},
                         lt[] = {A, B, LESS}, mul[] = {B, B, A};
    jc_op code[] = {
        {.code = JC_CODE_SET, .reg = 0, .constant_type = JC_INT64, .constant = ROUNDS},
        {.code = JC_CODE_LOOP, .target = 10, .reg = 0},
        {.code = JC_CODE_OP, .inputs = 1, .outputs = 1, .slots = there, .kernel = kernel_of("Copy")},
        {.code = JC_CODE_OP, .inputs = 2, .outputs = 1, .slots = add, .kernel = kernel_of("Add")},
        {.code = JC_CODE_OP, .inputs = 2, .outputs = 1, .slots = sub, .kernel = kernel_of("Sub")},
        {.code = JC_CODE_OP, .inputs = 1, .outputs = 1, .slots = back, .kernel = kernel_of("Copy")},
        {.code = JC_CODE_OP, .inputs = 1, .outputs = 1, .slots = neg, .kernel = kernel_of("Neg")},
        {.code = JC_CODE_OP, .inputs = 2, .outputs = 1, .slots = lt, .kernel = kernel_of("LT")},
        {.code = JC_CODE_OP, .inputs = 2, .outputs = 1, .slots = mul, .kernel = kernel_of("Mul")},
        {.code = JC_CODE_JUMP, .target = 1},
        {.code = JC_CODE_END},
    };
    PyArrayObject_fields arrays[] = {
        {.data = (char *)items[0], .nd = 1, .dimensions = dims, .descr = dtypes[0], .flags = NPY_ARRAY_C_CONTIGUOUS},
        {.data = (char *)items[1], .nd = 1, .dimensions = dims, .descr = dtypes[0], .flags = NPY_ARRAY_C_CONTIGUOUS},
        {.data = NULL},
        {.data = (char *)less, .nd = 1, .dimensions = dims, .descr = dtypes[1], .flags = NPY_ARRAY_C_CONTIGUOUS},
    };
    jc_slot slots[SLOTS];
    int64_t regs[1];
    int32_t cancelled = 0;
    int answer;
    jc_frame f;
    memset(&f, 0, sizeof f);
    for (size_t i = 0; i < sizeof code / sizeof *code; i++) {
        for (int k = 0; k < 2 && k < code[i].inputs + code[i].outputs; k++) {
            code[i].near[k] = code[i].slots[k] * (int64_t)sizeof(jc_slot);
        }
    }
    for (int i = 0; i < SLOTS; i++) {
        int scalar = i == ONE;
        slots[i] = (jc_slot){
            .version = &version,
            .seen = version,
            .data = scalar ? (void *)&one : arrays[i].data,
            .handle = scalar ? NULL : &arrays[i],
            .nbytes = i == LESS ? (int32_t)sizeof less : (int32_t)sizeof items[0],
            .number = i == LESS ? NPY_BOOL : NPY_INT64,
            .busy = &busy[i],
            .type = scalar ? JC_INT64 : JC_TENSOR,
            .writable = scalar ? JC_INT64 : JC_TENSOR,
        };
    }
    f.ops = code;
    f.slots = slots;
    f.regs = regs;
    f.cancelled = &cancelled;
    f.marks = marks;
    do {
        answer = jc_run(&f, 500);
    } while (answer == JC_SPENT);
    *(int *)argument = answer;
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    int answers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, run, &answers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK(answers[i] == JC_END);
    }
    for (int i = 1; i < ITEMS; i++) {
        CHECK(items[0][i] == items[0][0] && items[1][i] == items[1][0] && less[i] == less[0]);
    }
    for (int i = 0; i < SLOTS; i++) {
        CHECK(busy[i] == 0);
    }
    puts("well");
    return 0;
}
