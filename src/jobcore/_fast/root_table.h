/* The table of a root document, read as this library writes it: no spaces, members in order, plain integers.
 *
 * It is no JSON parser. Anything but that one form is declined, and a general parser has the word then. Nothing here touches
 * Python, and nothing is read at or after the end that is given.
 */
#ifndef JOBCORE_FAST_ROOT_TABLE_H
#define JOBCORE_FAST_ROOT_TABLE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A name, as UTF-8. */
typedef struct {
    const uint8_t *text;
    size_t nbytes;
} jc_name;

/* The quote that ends a text which starts at p, or NULL. *plain is 0 when there are escapes in it. */
static const uint8_t *jc_text_end(const uint8_t *p, const uint8_t *end, int *plain)
{
    *plain = 1;
    for (; p < end; p++) {
        if (*p == '"') {
            return p;
        }
        if (*p < 0x20) {
            return NULL;
        }
        if (*p == '\\') {
            *plain = 0;
            p++;
            if (p == end || *p < 0x20) {
                return NULL;
            }
        }
    }
    return NULL;
}

/* The end of a text that must stand at p, or NULL. */
static const uint8_t *jc_after(const uint8_t *p, const uint8_t *end, const char *text)
{
    size_t n = strlen(text);
    return (size_t)(end - p) >= n && memcmp(p, text, n) == 0 ? p + n : NULL;
}

/* Where a text stands first from p on, or NULL. */
static const uint8_t *jc_find(const uint8_t *p, const uint8_t *end, const char *text)
{
    size_t n = strlen(text);
    while ((size_t)(end - p) >= n) {
        const uint8_t *found = memchr(p, text[0], (size_t)(end - p) - n + 1);
        if (found == NULL || memcmp(found, text, n) == 0) {
            return found;
        }
        p = found + 1;
    }
    return NULL;
}

/* Count the commas up to the bracket that ends a list of integers; NULL when there is no bracket. */
static const uint8_t *jc_list_end(const uint8_t *p, const uint8_t *end, size_t *values)
{
    const uint8_t *stop = memchr(p, ']', (size_t)(end - p));
    *values = stop != NULL && stop > p;
    for (; stop != NULL && p < stop; p++) {
        *values += *p == ',';
    }
    return stop;
}

/* One integer below `limit`, which is at most 2^63; NULL when there is none. A comma or the end `stop` follows. */
static const uint8_t *jc_integer(const uint8_t *p, const uint8_t *stop, uint64_t limit, uint64_t *value)
{
    const uint8_t *start = p;
    uint64_t found = 0;
    while (p < stop && (uint8_t)(*p - '0') < 10) {
        found = found * 10 + (uint8_t)(*p++ - '0');
        if (p - start > 19) {
            return NULL; /* 19 digits are below 2^64 */
        }
    }
    if (p == start || (*start == '0' && p - start > 1) || found >= limit || (p < stop && *p != ',')) {
        return NULL;
    }
    *value = found;
    return p;
}

/* The integers of a list from p to stop, as many as were counted, of 4 or 8 bytes each. 1 when all are as they should be. */
static int jc_integers(const uint8_t *p, const uint8_t *stop, uint64_t limit, void *out, size_t count, int wide)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t value;
        p = jc_integer(p, stop, limit, &value);
        if (p == NULL) {
            return 0;
        }
        if (wide) {
            ((uint64_t *)out)[i] = value;
        } else {
            ((uint32_t *)out)[i] = (uint32_t)value;
        }
        p += p < stop; /* over the comma; a list that ends with one has an empty last value */
    }
    return p == stop && (count == 0 || stop[-1] != ',');
}

/* Whether specs and places go together: every blob has a spec, every chunk a place behind the chunk before it. */
static int jc_table_fits(const uint32_t *spec, size_t blobs, const uint64_t *chunks, const uint64_t *sizes, size_t specs,
                         const uint64_t *places, size_t count)
{
    uint64_t at = 0, end = 0;
    for (size_t i = 0; i < blobs; i++) {
        uint32_t index = spec[i];
        if (index >= specs || chunks[index] > count - at) {
            return 0;
        }
        for (uint64_t stop = at + chunks[index]; at < stop; at++) {
            if (places[at] < end) {
                return 0;
            }
            end = places[at] + sizes[index]; /* both are below 2^63 */
        }
    }
    return at == count;
}

#endif
