"""Records, and how they move: schemas, readers, writers and data sets."""

from __future__ import annotations

from jobcore.data.cached import CachedReader, DBFileReader
from jobcore.data.composite import CompositeReader, CompositeReaderBuilder
from jobcore.data.dataset import Dataset
from jobcore.data.iterables import IterableReader, reader_from
from jobcore.data.limits import (
    CounterReader,
    CountUntil,
    ReaderWithDelay,
    ReaderWithLimit,
    ReaderWithLimitBase,
    ReaderWithTimeLimit,
)
from jobcore.data.pipeline import pipe, pipe_and_output
from jobcore.data.processing import ProcessingReader
from jobcore.data.processors import NetProcessor, ProcessorOutput
from jobcore.data.python_processors import python_processor, python_sink
from jobcore.data.queues import Queue, QueueWrapper, close_queue, dequeue, enqueue
from jobcore.data.reader import Pipe, PipedReaderBuilder, Reader, ReaderBuilder, Writer
from jobcore.data.records import (
    as_record,
    const_record,
    feed_record,
    fetch_record,
    from_blob_list,
    from_column_list,
    init_empty_record,
    new_record,
)
from jobcore.data.schema import Field, List, Map, NamedTuple, Scalar, Struct, Tuple

__all__ = [
    "CachedReader",
    "CompositeReader",
    "CompositeReaderBuilder",
    "CountUntil",
    "CounterReader",
    "DBFileReader",
    "Dataset",
    "Field",
    "IterableReader",
    "List",
    "Map",
    "NamedTuple",
    "NetProcessor",
    "Pipe",
    "PipedReaderBuilder",
    "ProcessingReader",
    "ProcessorOutput",
    "Queue",
    "QueueWrapper",
    "Reader",
    "ReaderBuilder",
    "ReaderWithDelay",
    "ReaderWithLimit",
    "ReaderWithLimitBase",
    "ReaderWithTimeLimit",
    "Scalar",
    "Struct",
    "Tuple",
    "Writer",
    "as_record",
    "close_queue",
    "const_record",
    "dequeue",
    "enqueue",
    "feed_record",
    "fetch_record",
    "from_blob_list",
    "from_column_list",
    "init_empty_record",
    "new_record",
    "pipe",
    "pipe_and_output",
    "python_processor",
    "python_sink",
    "reader_from",
]
