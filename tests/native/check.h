/* What the programs of this folder expect: where it is not so, they say it and end. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: expected %s, errno %d\n", __FILE__, __LINE__, #what, errno); \
            exit(1); \
        } \
    } while (0)

#endif
