"""What a site may plug into checkpointing: a metadata handler and an upload builder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from jobcore.checkpoint.manager import Manager

__all__ = ["MetadataHandler", "UploadTaskGroupBuilder"]


class MetadataHandler:
    """Told about parameters, epochs and timings, and asked which epoch to resume.

    Every method has a default that changes nothing, so a handler overrides just what it needs. All are called
    from the thread that runs the job.
    """

    def set_params(
        self,
        *,
        db_prefix: str,
        db_type: str,
        node_names: Sequence[str],
        path_prefix: str | None = None,
        path_type: str | None = None,
    ) -> None:
        """Learn where things are; called once at the start of a run."""

    def last_epoch(self, *, user_epoch: int | Literal["latest"] | None) -> int | Literal["latest"] | None:
        """Return the epoch to resume: a number, ``"latest"``, or None for a start from scratch.

        The answer wins over `user_epoch`, what the runner was given, which is the default answer.
        """
        return user_epoch

    def cp_accessible(self, epoch: int | None) -> bool:  # noqa: ARG002 - for those who override it
        """Tell whether `epoch` may be saved now; False skips the save, which the result then says."""
        return True

    def write(self, *, epoch: int) -> None:
        """Learn that `epoch` is complete and durable."""

    def report(self, action: str, stats: Mapping[str, int]) -> None:
        """Receive timings: database path to nanoseconds.

        `action` is ``checkpoint_save``, ``checkpoint_load`` or ``checkpoint_partial_load``.
        """


class UploadTaskGroupBuilder:
    """Builds what ships a finished checkpoint elsewhere; override `build`."""

    def build(self, epoch: int, checkpoint_manager: Manager | None) -> Any:
        """Return something that a session can run.

        Parameters
        ----------
        epoch
            The last epoch of the run.
        checkpoint_manager
            The run's manager, whose ``get_ckpt_db_path(node, epoch)`` gives the files; None without one.
        """
        raise NotImplementedError(f"{type(self).__name__}.build is not written: override it")
