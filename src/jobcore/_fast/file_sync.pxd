"""Forcing several files to the disk at the same time."""


cdef extern from "file_sync.h" nogil:
    void jc_sync_files(const int *fds, int *codes, size_t count)
