/* What arrays take of the address space, and sorting by it. No function here touches Python. */

#ifndef JOBCORE_FAST_SHARING_H
#define JOBCORE_FAST_SHARING_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define JC_DIGIT 11 /* bits of an address that are sorted by at a time */
#define JC_DIGITS ((size_t)1 << JC_DIGIT)
#define JC_FEW 64 /* up to this number, comparing is quicker than counting */

typedef struct {
    uint64_t low;    /* address of the first byte */
    uint64_t high;   /* address after the last byte */
    uint64_t layout; /* 0 in C order without gaps; else an odd number that is equal for equal layouts */
    size_t index;    /* number of the array */
} jc_extent;

static inline uint64_t jc_mixed(uint64_t seed, uint64_t value)
{
    seed = (seed ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return seed ^ (seed >> 29);
}

/* Of an array in C order. */
static inline int jc_extent_plain(jc_extent *extent, uint64_t data, uint64_t nbytes)
{
    extent->low = data;
    extent->high = data + nbytes;
    extent->layout = 0;
    return extent->low < extent->high;
}

/* Of any other that has elements; 0 where its strides leave the address space, so that nobody could read it. */
static inline int jc_extent_strided(jc_extent *extent, uint64_t data, uint64_t item_bytes, int axes,
                                    const intptr_t *shape, const intptr_t *strides)
{
    const uint64_t most = UINT64_MAX >> 1;
    uint64_t low = data, high = data, layout = jc_mixed(UINT64_C(0xCBF29CE484222325), item_bytes);
    for (int axis = 0; axis < axes; axis++) {
        uint64_t steps = (uint64_t)shape[axis] - 1, stride = (uint64_t)strides[axis], reach;
        layout = jc_mixed(layout, (uint64_t)shape[axis]);
        if (shape[axis] == 1) {
            continue; /* its stride is anything */
        }
        layout = jc_mixed(layout, stride);
        stride = strides[axis] < 0 ? 0 - stride : stride;
        if (stride > most / steps) {
            return 0;
        }
        reach = steps * stride;
        if (strides[axis] < 0 ? reach > low : reach > UINT64_MAX - high) {
            return 0;
        }
        low -= strides[axis] < 0 ? reach : 0;
        high += strides[axis] < 0 ? 0 : reach;
    }
    extent->low = low;
    extent->high = high + item_bytes;
    extent->layout = layout | 1;
    return high < extent->high;
}

/* The order in which an array comes after whatever may hold it: by address, the widest first, of those in C order
   first, and as given. */
static int jc_compare_extents(const void *left, const void *right)
{
    const jc_extent *a = left, *b = right;
    if (a->low != b->low) {
        return a->low < b->low ? -1 : 1;
    }
    if (a->high != b->high) {
        return a->high > b->high ? -1 : 1;
    }
    if (a->layout != b->layout) {
        return a->layout < b->layout ? -1 : 1;
    }
    return a->index < b->index ? -1 : 1;
}

static void jc_sort_by_address(jc_extent *extents, jc_extent *spare, size_t n)
{
    uint64_t lowest = extents[0].low, highest = extents[0].low;
    int sorted = 1;
    jc_extent *from = extents, *to = spare;
    for (size_t i = 1; i < n; i++) {
        uint64_t low = extents[i].low;
        sorted = sorted && low >= extents[i - 1].low;
        lowest = low < lowest ? low : lowest;
        highest = low > highest ? low : highest;
    }
    if (sorted) {
        return;
    }
    if (n <= JC_FEW) {
        qsort(extents, n, sizeof *extents, jc_compare_extents);
        return;
    }
    for (int shift = 0; shift < 64 && (highest - lowest) >> shift; shift += JC_DIGIT) {
        size_t counts[JC_DIGITS] = {0}, place = 0;
        jc_extent *other = from;
        for (size_t i = 0; i < n; i++) {
            counts[((from[i].low - lowest) >> shift) & (JC_DIGITS - 1)]++;
        }
        for (size_t digit = 0; digit < JC_DIGITS; digit++) {
            size_t count = counts[digit];
            counts[digit] = place;
            place += count;
        }
        for (size_t i = 0; i < n; i++) {
            to[counts[((from[i].low - lowest) >> shift) & (JC_DIGITS - 1)]++] = from[i];
        }
        from = to;
        to = other;
    }
    if (from != extents) {
        memcpy(extents, from, n * sizeof *extents);
    }
}

/* Sort as jc_compare_extents() says; `spare` has room for as many. */
static void jc_sort_extents(jc_extent *extents, jc_extent *spare, size_t n)
{
    size_t begin = 0;
    if (n == 0) {
        return;
    }
    jc_sort_by_address(extents, spare, n);
    /* Most arrays lie apart. Only runs of those that do not need the rest of the order. */
    while (begin < n) {
        size_t end = begin + 1;
        uint64_t high = extents[begin].high;
        while (end < n && extents[end].low < high) {
            high = extents[end].high > high ? extents[end].high : high;
            end++;
        }
        if (end - begin > 1) {
            qsort(extents + begin, end - begin, sizeof *extents, jc_compare_extents);
        }
        begin = end;
    }
}

#endif
