"""The checkpoint database: named blobs in one file that is a standard Zarr v3 group.

Writing is all or nothing, reading checks every byte; the layout is ``docs/reference/format.md``.
"""

from jobcore.store.background import BackgroundSaver, PendingSave, save_async
from jobcore.store.codecs import Blosc, Zstd
from jobcore.store.layout import ChunkPolicy
from jobcore.store.policies import AliasOf, BlobPolicy, Skip
from jobcore.store.read import Database, inspect, load, open_database
from jobcore.store.records import BlobInfo, DatabaseInfo, Fault, LoadReport, VerifyReport, WriteResult
from jobcore.store.verification import verify
from jobcore.store.write import check_blobs, save, write_database

__all__ = [
    "AliasOf",
    "BackgroundSaver",
    "BlobInfo",
    "BlobPolicy",
    "Blosc",
    "ChunkPolicy",
    "Database",
    "DatabaseInfo",
    "Fault",
    "LoadReport",
    "PendingSave",
    "Skip",
    "VerifyReport",
    "WriteResult",
    "Zstd",
    "check_blobs",
    "inspect",
    "load",
    "open_database",
    "save",
    "save_async",
    "verify",
    "write_database",
]
