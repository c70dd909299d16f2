/* What a blob holds, as one value that can be moved: the fields of blob.pxd that say what it is, and the reference. */
#ifndef JOBCORE_FAST_VALUE_H
#define JOBCORE_FAST_VALUE_H

#include <stdint.h>
#include <sys/types.h>

#ifndef Py_PYTHON_H
/* As in Python.h, so that a program without an interpreter can move values too. */
typedef struct _object PyObject;
typedef ssize_t Py_ssize_t;
#endif

/* What a blob can be; the order is that of the names in blob.pyx. */
enum jc_kind {
    JC_KIND_EMPTY,
    JC_KIND_TENSOR,
    JC_KIND_COUNTER,
    JC_KIND_TIMER,
    JC_KIND_STRING,
    JC_KIND_BYTES,
    JC_KIND_STATE,
    JC_KIND_RNG,
    JC_KIND_OBJECT,
    JC_KIND_QUEUE,
};

typedef struct {
    PyObject *held;      /* one reference that whoever has the value owns; NULL for nothing */
    void *data;          /* first byte of a tensor, of bytes or of a string as UTF-8; else NULL */
    Py_ssize_t nbytes;
    int32_t kind;        /* enum jc_kind */
    int32_t scalar_type; /* as Blob._scalar_type */
} jc_value;

#endif
