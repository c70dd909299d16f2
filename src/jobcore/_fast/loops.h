/* Arithmetic, comparison and logic on arrays of one dtype: plain loops, found by NumPy's number of the dtype.
 *
 * Integers wrap around: their arithmetic is unsigned, and in at least 32 bits, since C makes signed ints of what is
 * narrower. Comparisons with NaN are false, but for `!=`. Of a boolean any byte but 0 is true.
 *
 * Two operands of one shape, or one of them a single item for all of the other; the result may be one of the two.
 */
#ifndef JOBCORE_FAST_LOOPS_H
#define JOBCORE_FAST_LOOPS_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#define JC_DTYPES 13 /* NumPy's numbers, from bool to double */

enum jc_singles { JC_NO_SINGLE, JC_LEFT_SINGLE, JC_RIGHT_SINGLE };

typedef void (*jc_loop)(void *out, const void *left, const void *right, size_t items, int singles);

/* Items of type `item` are worked on as `work` and become items of type `to`. */
#define JC_BINARY_LOOP(name, item, work, to, expression)                                                \
    static void jc_loop_##name(void *out, const void *left, const void *right, size_t items, int singles) \
    {                                                                                                   \
        const item *x = left, *y = right;                                                               \
        to *result = out;                                                                               \
        work a, b;                                                                                      \
        size_t i;                                                                                       \
        if (singles == JC_LEFT_SINGLE) {                                                                \
            for (a = (work)*x, i = 0; i < items; i++) {                                                 \
                b = (work)y[i];                                                                         \
                result[i] = (to)(expression);                                                           \
            }                                                                                           \
        } else if (singles == JC_RIGHT_SINGLE) {                                                        \
            for (b = (work)*y, i = 0; i < items; i++) {                                                 \
                a = (work)x[i];                                                                         \
                result[i] = (to)(expression);                                                           \
            }                                                                                           \
        } else {                                                                                        \
            for (i = 0; i < items; i++) {                                                               \
                a = (work)x[i];                                                                         \
                b = (work)y[i];                                                                         \
                result[i] = (to)(expression);                                                           \
            }                                                                                           \
        }                                                                                               \
    }

#define JC_UNARY_LOOP(name, item, work, expression)                                            \
    static void jc_loop_##name(void *out, const void *in, const void *none, size_t items, int singles) \
    {                                                                                          \
        const item *x = in;                                                                    \
        item *result = out;                                                                    \
        size_t i;                                                                              \
        (void)none;                                                                            \
        (void)singles;                                                                         \
        for (i = 0; i < items; i++) {                                                          \
            work a = (work)x[i];                                                               \
            result[i] = (item)(expression);                                                    \
        }                                                                                      \
    }

/* The widths of a row of loops, by NumPy's numbers; the two types that C calls long come by their size. */
#if LONG_MAX == INT_MAX
#define JC_LONG(narrow, wide) narrow
#else
#define JC_LONG(narrow, wide) wide
#endif

#define JC_WRAPPING_LOOPS(kind, name, expression)        \
    kind(name##_8, uint8_t, uint32_t, expression)        \
    kind(name##_16, uint16_t, uint32_t, expression)      \
    kind(name##_32, uint32_t, uint32_t, expression)      \
    kind(name##_64, uint64_t, uint64_t, expression)      \
    kind(name##_float, float, float, expression)         \
    kind(name##_double, double, double, expression)

#define JC_WRAPPING_ROW(name)                                                                                      \
    static const jc_loop jc_loops_##name[JC_DTYPES] = {                                                            \
        NULL, jc_loop_##name##_8, jc_loop_##name##_8, jc_loop_##name##_16, jc_loop_##name##_16, jc_loop_##name##_32, \
        jc_loop_##name##_32, JC_LONG(jc_loop_##name##_32, jc_loop_##name##_64),                                    \
        JC_LONG(jc_loop_##name##_32, jc_loop_##name##_64), jc_loop_##name##_64, jc_loop_##name##_64,               \
        jc_loop_##name##_float, jc_loop_##name##_double,                                                           \
    };

#define JC_SAME_BINARY_LOOP(name, item, work, expression) JC_BINARY_LOOP(name, item, work, item, expression)

#define JC_ARITHMETIC_LOOPS(name, expression)                        \
    JC_WRAPPING_LOOPS(JC_SAME_BINARY_LOOP, name, expression)         \
    JC_WRAPPING_ROW(name)

JC_ARITHMETIC_LOOPS(Add, a + b)
JC_ARITHMETIC_LOOPS(Sub, a - b)
JC_ARITHMETIC_LOOPS(Mul, a * b)

JC_WRAPPING_LOOPS(JC_UNARY_LOOP, Neg, -a)
JC_WRAPPING_ROW(Neg)

/* Integers are divided by NumPy, which knows what to do with zeros. */
JC_SAME_BINARY_LOOP(Div_float, float, float, a / b)
JC_SAME_BINARY_LOOP(Div_double, double, double, a / b)
static const jc_loop jc_loops_Div[JC_DTYPES] = {[11] = jc_loop_Div_float, [12] = jc_loop_Div_double};

#define JC_COMPARISON_LOOPS(name, operator)                                             \
    JC_BINARY_LOOP(name##_bool, uint8_t, _Bool, uint8_t, a operator b)                  \
    JC_BINARY_LOOP(name##_i8, int8_t, int8_t, uint8_t, a operator b)                    \
    JC_BINARY_LOOP(name##_u8, uint8_t, uint8_t, uint8_t, a operator b)                  \
    JC_BINARY_LOOP(name##_i16, int16_t, int16_t, uint8_t, a operator b)                 \
    JC_BINARY_LOOP(name##_u16, uint16_t, uint16_t, uint8_t, a operator b)               \
    JC_BINARY_LOOP(name##_i32, int32_t, int32_t, uint8_t, a operator b)                 \
    JC_BINARY_LOOP(name##_u32, uint32_t, uint32_t, uint8_t, a operator b)               \
    JC_BINARY_LOOP(name##_i64, int64_t, int64_t, uint8_t, a operator b)                 \
    JC_BINARY_LOOP(name##_u64, uint64_t, uint64_t, uint8_t, a operator b)               \
    JC_BINARY_LOOP(name##_float, float, float, uint8_t, a operator b)                   \
    JC_BINARY_LOOP(name##_double, double, double, uint8_t, a operator b)                \
    static const jc_loop jc_loops_##name[JC_DTYPES] = {                                 \
        jc_loop_##name##_bool, jc_loop_##name##_i8, jc_loop_##name##_u8, jc_loop_##name##_i16,  \
        jc_loop_##name##_u16, jc_loop_##name##_i32, jc_loop_##name##_u32,               \
        JC_LONG(jc_loop_##name##_i32, jc_loop_##name##_i64),                            \
        JC_LONG(jc_loop_##name##_u32, jc_loop_##name##_u64), jc_loop_##name##_i64,      \
        jc_loop_##name##_u64, jc_loop_##name##_float, jc_loop_##name##_double,          \
    };

JC_COMPARISON_LOOPS(EQ, ==)
JC_COMPARISON_LOOPS(NE, !=)
JC_COMPARISON_LOOPS(LT, <)
JC_COMPARISON_LOOPS(LE, <=)
JC_COMPARISON_LOOPS(GT, >)
JC_COMPARISON_LOOPS(GE, >=)

#define JC_LOGIC_LOOPS(name, operator)                                       \
    JC_BINARY_LOOP(name, uint8_t, _Bool, uint8_t, a operator b)              \
    static const jc_loop jc_loops_##name[JC_DTYPES] = {jc_loop_##name};

JC_LOGIC_LOOPS(And, &)
JC_LOGIC_LOOPS(Or, |)
JC_LOGIC_LOOPS(Xor, ^)

JC_UNARY_LOOP(Not, uint8_t, _Bool, !a)
static const jc_loop jc_loops_Not[JC_DTYPES] = {jc_loop_Not};

#endif
