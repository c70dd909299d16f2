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

typedef struct {
    PyObject *held;      /* one reference that whoever has the value owns; NULL for nothing */
    void *data;          /* first byte of a tensor, of bytes or of a string as UTF-8; else NULL */
    Py_ssize_t nbytes;
    int32_t kind;        /* BlobKind */
    int32_t scalar_type; /* as Blob._scalar_type */
} jc_value;

#endif
