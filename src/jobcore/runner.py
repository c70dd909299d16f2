"""Run time: a job runner drives one job through a session, saves every epoch and resumes."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from jobcore.checkpoint import (
    EpochRecord,
    Manager,
    RunResult,
    SaveFailurePolicy,
    SaveResult,
    UploadTaskGroupBuilder,
)
from jobcore.checkpoint.damage import is_damage
from jobcore.checkpoint.paths import check_epoch
from jobcore.checkpoint.results import EpochResult
from jobcore.epoch_saver import CheckpointWarning, EpochSaver, tell_handler
from jobcore.errors import BuildError, CheckpointNotFoundError, TaskGroupError
from jobcore.events import Observer, Observers, RunEvent
from jobcore.graph import BlobReference
from jobcore.job import CompiledJob, Job
from jobcore.runtime import Session

__all__ = ["JobRunner"]


class JobRunner:
    """Drives one job through a session: set-up, init or load, epochs with a checkpoint each, upload, download, exit.

    Parameters
    ----------
    job
        The job, or what ``job.compile`` returned.
    checkpoint_manager
        Saves and loads; without one nothing is saved.
    resume_from_epoch
        A number: go on from that epoch, which must exist. ``"latest"``: from the newest epoch that is complete and
        undamaged, or from scratch when the run directory holds none. None: from scratch.
    upload_task_group_builder
        Ships the last checkpoint elsewhere after the last epoch.
    on_save_failure
        What a failed save does to the run; by default the run ends when three saves in a row fail, or the last one.
    observers
        Called with each `RunEvent`, in the thread that runs the job.

    Attributes
    ----------
    result : RunResult
        What the run came to; filled while it goes on, and there after a failure.
    """

    def __init__(
        self,
        job: Job | CompiledJob,
        checkpoint_manager: Manager | None = None,
        resume_from_epoch: int | Literal["latest"] | None = None,
        upload_task_group_builder: UploadTaskGroupBuilder | None = None,
        *,
        on_save_failure: SaveFailurePolicy | None = None,
        observers: Iterable[Observer] = (),
    ) -> None:
        resume_from_epoch = _resumable("resume_from_epoch", resume_from_epoch)
        if resume_from_epoch is not None and checkpoint_manager is None:
            raise ValueError(
                f"expected a checkpoint manager to resume from {resume_from_epoch!r}, found none: "
                "give checkpoint_manager, or leave resume_from_epoch out"
            )
        if not isinstance(on_save_failure, SaveFailurePolicy | None):
            raise BuildError(
                f"expected a SaveFailurePolicy as on_save_failure, found {on_save_failure!r}",
                hint="SaveFailurePolicy.warn(), raise_at_once() or raise_after(n)",
            )
        self.job = job
        self.checkpoint_manager = checkpoint_manager
        self.resume_from_epoch = resume_from_epoch
        self.upload_task_group_builder = upload_task_group_builder
        self.on_save_failure = on_save_failure or SaveFailurePolicy.raise_after(3)
        self.result = RunResult()
        self._emit = Observers(observers)
        self._saver = self._new_saver()

    def train(self, session: Session) -> int:
        """Run the whole job and return the number of its last epoch.

        Parameters
        ----------
        session
            Where it runs.

        Raises
        ------
        BuildError
            The job is described wrongly, or has no stop condition.
        TaskGroupError
            A task failed. Among tasks are those that save and load: the failures then hold a `SaveError` when
            the policy ends the run, an `UnsupportedBlobError`, a `MismatchError`, or a `FormatError` when the epoch
            to resume from, given by number, is damaged.
        CheckpointNotFoundError
            The epoch to resume from does not exist, or every one there is is damaged.
        VersionError
            A newer version of this library wrote the run directory.
        ReadError
            A file of the run directory cannot be read now (inside a `TaskGroupError` when it is a database): it may be
            whole, so no earlier epoch is taken in its place.
        SaveError
            Checkpoints cannot be written or committed, and the policy ends the run.
        SupersededError
            Another process has taken over the run directory.
        """
        job = self.job.compile(type(session)) if isinstance(self.job, Job) else self.job
        if not job.stop_conditions:
            raise BuildError(
                "expected a job with a stop condition, found none: it would never end",
                hint="use epoch_limiter(job, n), job.add_stop_condition(output) or job.stop_when(name, reached)",
            )
        self.result = RunResult()
        self._saver = self._new_saver()
        begin = time.perf_counter()
        try:
            self._emit(RunEvent("run_started"))
            epoch = self._lifecycle(job, session)
        except BaseException as error:
            if self._saver is not None:
                self._saver.drain(error)
            self.result.status = "failed" if isinstance(error, Exception) else "interrupted"
            self._finished(begin, f"{type(error).__name__}: {error}")
            raise
        self.result.status = "completed"
        self._finished(begin, "")
        return epoch

    def load_blobs_from_checkpoints(
        self, blob_names: Iterable[str | BlobReference], epoch: int, session: Session
    ) -> bool:
        """Load some blobs of every checkpointed node from `epoch`, each into its node's workspace.

        Returns
        -------
        bool
            False when a node has no database for this epoch. ``checkpoint_manager.last_partial_load`` tells the names
            found and missing on each node.

        Raises
        ------
        ValueError
            There is no checkpoint manager.
        """
        manager = self._manager("load_blobs_from_checkpoints")
        nodes = self.job.nodes_to_checkpoint()
        manager.set_params(nodes=nodes)
        done = manager.load_blobs_locally(nodes, blob_names, epoch, session)
        if done:
            manager.report_checkpoint_stats("checkpoint_partial_load")
        return done

    def save_checkpoints(
        self, epoch: int, session: Session, stop: Mapping[str, Any] | None = None
    ) -> SaveResult:
        """Save one epoch on every node, commit it, and tell the handler.

        A manager that saves in the background is waited for.

        Returns
        -------
        SaveResult
            What came of it: saved, skipped with the reason, or failed with the error. What the environment does is a
            result; an error in the program is raised.

        Raises
        ------
        ValueError
            There is no checkpoint manager.
        UnsupportedBlobError
            A blob cannot be stored (inside the `TaskGroupError` of the group that saves).
        SupersededError
            Another process has taken over the run directory.
        """
        self._manager("save_checkpoints")
        assert self._saver is not None
        return self._saver.save(epoch, session, stop)

    # -- the lifecycle, one method a stage

    def _lifecycle(self, job: CompiledJob, session: Session) -> int:
        manager = self.checkpoint_manager
        candidates, newest = self._candidates(manager, job)
        self._group(session, "setup", job.setup_group)
        record = None
        if candidates:
            assert manager is not None
            record = self._restore(manager, candidates, job, session)
            self.result.resumed_from = self.result.last_epoch = record.epoch
        else:
            self._group(session, "init", job.init_group)
            if manager is not None:
                session.run(manager.init(job.nodes_to_checkpoint()))
        epoch = record.epoch if record else 0
        if record is not None and _finished(record, job):
            self._emit(RunEvent("stopped", epoch, message="the run had ended already"))
        else:
            self._begin(manager, newest)
            saver = self._saver
            if saver is not None and record is None:
                self.result.initial_save = saver.begin(0, session, None)
                saver.apply_policy(self.result.initial_save)
            epoch = self._epochs(job, session, epoch)
        if self.upload_task_group_builder is not None:
            self._group(session, "upload", self.upload_task_group_builder.build(epoch, manager))
        self._group(session, "download", job.download_group)
        self._group(session, "exit", job.exit_group)
        return epoch

    def _candidates(self, manager: Manager | None, job: CompiledJob) -> tuple[list[EpochRecord], int | None]:
        """Decide what to resume from: the newest generation, and records to try in turn, none from scratch."""
        if manager is None:
            return [], None
        manager.set_params(nodes=job.nodes_to_checkpoint())
        wanted = _resumable(
            "the metadata handler's last_epoch", manager.get_resume_from_epoch_id(self.resume_from_epoch)
        )
        self.resume_from_epoch = wanted
        # Only where the newest is taken does every record matter.
        history = manager.history(None if wanted == "latest" else wanted, tolerant=wanted is None)
        if wanted is None:
            if history.records:
                number, last = len(history.epochs), history.epochs[-1]
                warnings.warn(
                    f"starting from scratch: {number} epoch{'s' if number > 1 else ''} in {history.directory}, up to "
                    f'epoch {last}, will no longer count; resume_from_epoch="latest" would go on from there',
                    CheckpointWarning,
                    stacklevel=2,
                )
            return [], history.newest
        if wanted != "latest":
            return [history.get(wanted)], history.newest
        for fault in history.faults:
            self._damaged(fault.epoch, f"{fault.path}: {fault.message}")
        if not history.records and any(fault.epoch is not None for fault in history.faults):
            raise CheckpointNotFoundError(
                f"expected an undamaged epoch in {history.directory}, found only damaged records",
                hint="start from scratch with resume_from_epoch=None if that is what you want",
            )
        if not history.records and history.superseded:
            warnings.warn(
                f"starting from scratch: the epochs in {history.directory} were superseded by a start from scratch "
                "that saved none",
                CheckpointWarning,
                stacklevel=2,
            )
        return list(reversed(history.records)), history.newest

    def _restore(
        self, manager: Manager, candidates: Sequence[EpochRecord], job: CompiledJob, session: Session
    ) -> EpochRecord:
        explicit = self.resume_from_epoch != "latest"
        for record in candidates:
            begin = time.perf_counter()
            self._emit(RunEvent("group_started", record.epoch, "load", size_bytes=record.size_bytes))
            try:
                nodes = job.nodes_to_checkpoint()
                session.run(manager.init(nodes, retrieve_from_epoch=record.epoch, record=record))
                session.run(manager.load(record.epoch, record=record))
            except TaskGroupError as error:
                # Blobs that one node loaded before another failed must not get into a run of other epochs.
                session.run(manager.abandon_load())
                if explicit or not all(is_damage(failure.error) for failure in error.failures):
                    raise
                self._damaged(record.epoch, "; ".join(failure.describe() for failure in error.failures))
                continue
            seconds = time.perf_counter() - begin
            self._emit(RunEvent("group_finished", record.epoch, "load", seconds, record.size_bytes))
            self._emit(RunEvent("resumed", record.epoch, "load", seconds, record.size_bytes))
            tell_handler(manager, "checkpoint_load")
            return record
        raise CheckpointNotFoundError(
            f"expected an undamaged epoch in {manager.path_prefix or manager.db_prefix}, found damage in every one of "
            f"{sorted(r.epoch for r in candidates)}",
            hint="start from scratch with resume_from_epoch=None if that is what you want",
        )

    def _begin(self, manager: Manager | None, newest: int | None) -> None:
        # A directory that cannot be written is found now, and not after an epoch of training.
        if manager is None:
            return
        try:
            manager.begin(after=newest)
        except OSError as error:
            if self.on_save_failure.ends_run(1, last=True):
                raise
            warnings.warn(f"checkpoints cannot be written: {error}", CheckpointWarning, stacklevel=2)

    def _epochs(self, job: CompiledJob, session: Session, epoch: int) -> int:
        saver = self._saver
        while True:
            epoch += 1
            if self._emit.wanted:
                self._emit(RunEvent("epoch_started", epoch, "epoch"))
            begin = time.perf_counter()
            session.run(job.epoch_group)
            seconds = time.perf_counter() - begin
            met = {condition.name: condition.met(epoch) for condition in job.stop_conditions}
            if saver is not None:
                # The save of the epoch before, where it went on in the background.
                saver.apply_policy(saver.settle())
            if self._emit.wanted:
                outputs = _outputs(job.epoch_group)
                self._emit(RunEvent("epoch_finished", epoch, "epoch", seconds, outputs=outputs))
            save = None
            if saver is not None:
                stop = {
                    "met": any(met.values()),
                    "conditions": [{"name": name, "met": value} for name, value in met.items()],
                }
                save = saver.begin(epoch, session, stop)
            self.result.epochs.append(EpochResult(epoch, seconds, save))
            self.result.last_epoch = epoch
            if any(met.values()):
                if saver is not None:
                    save = saver.settle() or save
                reasons = ", ".join(name for name, value in met.items() if value)
                self._emit(RunEvent("stopped", epoch, message=reasons))
                if saver is not None:
                    saver.apply_policy(save, last=True)
                return epoch
            if saver is not None:
                saver.apply_policy(save)

    # -- small things

    def _new_saver(self) -> EpochSaver | None:
        manager = self.checkpoint_manager
        if manager is None:
            return None
        return EpochSaver(manager, self.on_save_failure, self._emit, lambda save: self.result.settle(save))

    def _group(self, session: Session, name: str, group: Any) -> None:
        self._emit(RunEvent("group_started", group=name))
        begin = time.perf_counter()
        session.run(group)
        self._emit(RunEvent("group_finished", group=name, seconds=time.perf_counter() - begin))

    def _manager(self, method: str) -> Manager:
        if self.checkpoint_manager is None:
            raise ValueError(f"expected a checkpoint manager for {method}, found none")
        return self.checkpoint_manager

    def _damaged(self, epoch: int | None, message: str) -> None:
        if epoch is not None:
            self.result.damaged.append((epoch, message))
        self._emit(RunEvent("checkpoint_damaged", epoch, message=message))
        what = "a claim" if epoch is None else f"epoch {epoch}"
        warnings.warn(f"{what} is damaged and passed over: {message}", CheckpointWarning, stacklevel=2)

    def _finished(self, begin: float, message: str) -> None:
        result = self.result
        seconds = time.perf_counter() - begin
        self._emit(RunEvent("run_finished", result.last_epoch, "", seconds, 0, result.status, message))


def _resumable(what: str, value: object) -> int | Literal["latest"] | None:
    if value is None:
        return None
    if isinstance(value, str) and value == "latest":
        return "latest"
    return check_epoch(what, value, others=', "latest" or None')


def _finished(record: EpochRecord, job: CompiledJob) -> bool:
    """Tell whether a resumed job has nothing left to do, by today's conditions."""
    stored = {c["name"] for c in record.stop.get("conditions", ()) if c.get("met")}
    return any(
        condition.met(record.epoch) if condition.reached is not None else condition.name in stored
        for condition in job.stop_conditions
    )


def _outputs(group: Any) -> dict[str, object]:
    return {output.label: output.fetch() for task in group.tasks for output in task.outputs() if output.label}
