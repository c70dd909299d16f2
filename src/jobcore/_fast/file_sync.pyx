"""Forcing several files to the disk in about the time that one takes."""

from libc.stdlib cimport free, malloc

from jobcore._fast.file_sync cimport jc_sync_files

__all__ = ["sync_files"]


def sync_files(object descriptors):
    """Force the data of files to the disk: in turn where it is quick, at the same time where it is slow.

    Parameters
    ----------
    descriptors : sequence of int
        Those of the files. They must stay open meanwhile.

    Returns
    -------
    list of int
        For each file 0, or the errno with which it failed.

    Notes
    -----
    Runs without the GIL, with threads of its own that have ended when it returns; so an interrupt comes out after it.
    """
    cdef Py_ssize_t count = len(descriptors), i
    if count == 0:
        return []
    cdef int *fds = <int *>malloc(2 * <size_t>count * sizeof(int))
    if fds == NULL:
        raise MemoryError(f"sync_files: no memory for {count} descriptors")
    try:
        for i in range(count):
            fds[i] = descriptors[i]
        with nogil:
            jc_sync_files(fds, fds + count, <size_t>count)
        return [fds[count + i] for i in range(count)]
    finally:
        free(fds)
