"""Checkpoints of a job: managers, the commit log, and what a site may plug in."""

from jobcore.checkpoint.background import PendingCommit
from jobcore.checkpoint.core import PartialLoad
from jobcore.checkpoint.handler import MetadataHandler, UploadTaskGroupBuilder
from jobcore.checkpoint.history import History, LogFault
from jobcore.checkpoint.lineage import EpochRecord, NodeEntry
from jobcore.checkpoint.log import CommitLog
from jobcore.checkpoint.manager import Manager
from jobcore.checkpoint.managers import CheckpointManager, MultiNodeCheckpointManager
from jobcore.checkpoint.paths import RunDirectory, db_name, get_ckpt_filename
from jobcore.checkpoint.policy import SaveFailurePolicy
from jobcore.checkpoint.results import EpochResult, RunResult, SaveResult

__all__ = [
    "CheckpointManager",
    "CommitLog",
    "EpochRecord",
    "EpochResult",
    "History",
    "LogFault",
    "Manager",
    "MetadataHandler",
    "MultiNodeCheckpointManager",
    "NodeEntry",
    "PartialLoad",
    "PendingCommit",
    "RunDirectory",
    "RunResult",
    "SaveFailurePolicy",
    "SaveResult",
    "UploadTaskGroupBuilder",
    "db_name",
    "get_ckpt_filename",
]
