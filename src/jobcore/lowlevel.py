"""The parts, for authors of other libraries: blobs, their table, queues, and the writers and readers of databases.

Nothing here is needed to write or run a job; `jobcore.Workspace` is the comfortable way to the same blobs.
`Counter` and `Timer`, which are parts too, are public in `jobcore`. The objects, and what threads may do with
them:

================  ====================================================  ===============================================
object            what it is                                            threads
================  ====================================================  ===============================================
`Blob`            one named value; holding it saves the look-up         any method from any thread; each takes effect
                                                                        at one moment, no thread gets half a tensor
`BlobTable`       named blobs with a parent's behind them, the base     any method from any thread; threads that create
                  of `jobcore.Workspace`, for the kinds that need no    one name at once get one blob
                  Python code
`classify`        the rule that tells kind and kept value of what is    safe while nobody changes the value
                  fed; the argument that a `Blob` of its own wants
`BLOB_KINDS`      the names of the kinds                                constant
`BlobQueue`       a bounded queue of records of blobs                   any method from any thread; waits need no GIL
`RebatchingQueue` a bounded queue of rows of tensors, put in and taken  any method from any thread; waits need no GIL
                  out in batches
`QueueTotals`     the numbers of a queue, also when it is gone          safe
`CancelFlag`      an order to stop, which ends waits                    safe
`BlockWriter`     a stream of bytes into large aligned writes, around   one thread
                  the page cache where that is allowed
`read_chunks`     ranges of a file into their memory, in parallel       safe
`Arena`           memory that is kept, in huge pages                    one thread
`ZipImage`        the bytes of a database: into a stream or an arena    one thread
`RootTable`       the table of a root document, in native memory        any thread; it does not change
`Rooms`           memory for its blobs, to be filled before the arrays  one thread
                  of it are made
`ZipLayout`       where all lies in a database, and reading by it       one thread makes it; any thread then
`crc32`,          the checksums of the two containers                   safe
`crc32c`
`hash128`         XXH3-128, by which equal chunks are known             safe
================  ====================================================  ===============================================

**Memory.** `Blob.feed` and `Blob.fetch` copy; from 256 KiB on without the GIL. A feed writes into the memory
that the blob has when dtype, shape and layout are equal and nobody holds the array (`Blob.view`,
`Blob.value`, a copy that is under way in another thread); otherwise it goes to new memory, and who holds the
old array keeps what it shows. To fill a tensor without a copy, `Blob.take_buffer` gives an array, the blob's
own where that harms nobody, and `Blob.adopt` makes it the value. `Blob.bind` makes an outside array the blob
for good; its memory is then shared with the outside by intent.

**Waiting.** A feed of 256 KiB or more into memory that is used again, or that is bound, and a fetch of that
size from bound memory, keep the other threads out of that one blob until they are done. Those wait without
the GIL, and threads that wait are let in before the next such copy. No call holds more than one blob, so no
two calls can wait for each other.

**Fork.** A child process may use every blob and table. A tensor that a thread of the parent was writing into
is empty in the child, and the first read there says so.

**Native code** cimports `jobcore._fast.blob`, `jobcore._fast.workspace` and `jobcore._fast.queue`, whose ``.pxd``
files name each field with what guards it.

Examples
--------
>>> import numpy as np
>>> from jobcore.lowlevel import Blob, classify
>>> blob = Blob("weights", classify)
>>> blob.feed(np.zeros(3))
>>> seen = blob.view()
>>> blob.feed(np.ones(3))
>>> seen, blob.fetch()
(array([0., 0., 0.]), array([1., 1., 1.]))
>>> array = blob.take_buffer(3, "f8")
>>> array[:] = 2.0
>>> blob.adopt(array)
>>> blob
<Blob 'weights': tensor, float64 (3,)>
"""

from __future__ import annotations

from jobcore._fast.arena import Arena
from jobcore._fast.blob import BLOB_KINDS, Blob
from jobcore._fast.cancel import CancelFlag
from jobcore._fast.chunk import BlockWriter, read_chunks
from jobcore._fast.crc import crc32
from jobcore._fast.crc32c import crc32c
from jobcore._fast.fresh import Rooms
from jobcore._fast.hash128 import hash128
from jobcore._fast.image import ZipImage
from jobcore._fast.queue import BlobQueue
from jobcore._fast.queue_totals import QueueTotals
from jobcore._fast.reader import ZipLayout
from jobcore._fast.rebatch import RebatchingQueue
from jobcore._fast.table import RootTable
from jobcore._fast.workspace import BlobTable
from jobcore.workspace import classify

__all__ = [
    "BLOB_KINDS",
    "Arena",
    "Blob",
    "BlobQueue",
    "BlobTable",
    "BlockWriter",
    "CancelFlag",
    "QueueTotals",
    "RebatchingQueue",
    "Rooms",
    "RootTable",
    "ZipImage",
    "ZipLayout",
    "classify",
    "crc32",
    "crc32c",
    "hash128",
    "read_chunks",
]
