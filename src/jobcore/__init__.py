"""Training jobs that survive anything.

Build time: `Job`, `Task`, `TaskGroup`, `Node`, `ops` describe work. Run time: `LocalSession` does it, and
`JobRunner` saves every epoch through a checkpoint manager and resumes. Without any job, `save`, `load`, `inspect` and
`verify` work on one checkpoint database. `jobcore.lowlevel` holds the parts.
"""

from jobcore._fast.counter import Counter
from jobcore._fast.timer import Timer
from jobcore._version import __version__
from jobcore.checkpoint import (
    CheckpointManager,
    MetadataHandler,
    MultiNodeCheckpointManager,
    RunResult,
    SaveFailurePolicy,
    SaveResult,
    UploadTaskGroupBuilder,
    db_name,
    get_ckpt_filename,
)
from jobcore.epoch_saver import CheckpointWarning
from jobcore.events import RunEvent
from jobcore.graph import (
    BlobReference,
    ExecutionStep,
    NameScope,
    Net,
    NetBuilder,
    Plan,
    SetupNets,
    execution_step,
    ops,
    to_execution_step,
)
from jobcore.job import CompiledJob, Job, StopCondition, epoch_limiter
from jobcore.runner import JobRunner
from jobcore.runtime import LocalSession, Session, check_cancelled, sleep
from jobcore.statistics import Statistic, StatRegistry, stat_registry
from jobcore.store import BackgroundSaver, PendingSave, inspect, load, save, save_async, verify
from jobcore.tasks import (
    Cluster,
    Node,
    Task,
    TaskGroup,
    TaskOutput,
    TaskOutputList,
    WorkspaceType,
    final_output,
)
from jobcore.tracing import Span, Trace, span
from jobcore.workspace import Workspace

__all__ = [
    "BackgroundSaver",
    "BlobReference",
    "CheckpointManager",
    "CheckpointWarning",
    "Cluster",
    "CompiledJob",
    "Counter",
    "ExecutionStep",
    "Job",
    "JobRunner",
    "LocalSession",
    "MetadataHandler",
    "MultiNodeCheckpointManager",
    "NameScope",
    "Net",
    "NetBuilder",
    "Node",
    "PendingSave",
    "Plan",
    "RunEvent",
    "RunResult",
    "SaveFailurePolicy",
    "SaveResult",
    "Session",
    "SetupNets",
    "Span",
    "StatRegistry",
    "Statistic",
    "StopCondition",
    "Task",
    "TaskGroup",
    "TaskOutput",
    "TaskOutputList",
    "Timer",
    "Trace",
    "UploadTaskGroupBuilder",
    "Workspace",
    "WorkspaceType",
    "__version__",
    "check_cancelled",
    "db_name",
    "epoch_limiter",
    "execution_step",
    "final_output",
    "get_ckpt_filename",
    "inspect",
    "load",
    "ops",
    "save",
    "save_async",
    "sleep",
    "span",
    "stat_registry",
    "to_execution_step",
    "verify",
]
