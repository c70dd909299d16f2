"""Traces: each task and step with its thread and node, whatever becomes of it, and nothing when no trace is open."""

from __future__ import annotations

import contextlib
import json
import threading

import pytest

import jobcore
from jobcore import LocalSession, NetBuilder, Node, Task, TaskGroup, Trace, ops, span
from jobcore.errors import TaskGroupError
from jobcore.graph import execution_step
from jobcore.tracing import SpanStack, active_trace
from session_tools import boom, concurrent


def nothing(ws):
    pass


def names(trace, category=None):
    return [found.name for found in trace.spans() if category in (None, found.category)]


class TestTrace:
    def test_spans_of_all_threads(self):
        with Trace() as trace:
            with span("outer", "mine", "n1", epoch=3), span("inner"):
                pass
            thread = threading.Thread(target=_other, name="worker")
            thread.start()
            thread.join()
        inner, outer, other = trace.spans()
        assert (inner.name, outer.name, other.name) == ("inner", "outer", "other")
        assert (outer.category, outer.node, outer.args) == ("mine", "n1", {"epoch": 3})
        assert outer.start_ns <= inner.start_ns
        assert inner.start_ns + inner.duration_ns <= outer.start_ns + outer.duration_ns
        assert other.thread == "worker"
        assert other.thread_id != outer.thread_id

    def test_one_at_a_time(self):
        with Trace():
            with pytest.raises(RuntimeError, match="one at a time"), Trace():
                pass
            assert active_trace() is not None
        assert active_trace() is None
        with span("nobody looks"):
            pass

    def test_an_error_is_noted_and_goes_on(self):
        with Trace() as trace, pytest.raises(ValueError, match="boom"), span("bad"):
            raise ValueError("boom")
        assert trace.spans()[0].args == {"error": "ValueError: boom"}

    def test_there_is_a_limit(self):
        with Trace(limit=2) as trace:
            for number in range(5):
                with span(str(number)):
                    pass
        assert (names(trace), trace.dropped) == (["0", "1"], 3)

    def test_the_file_is_what_viewers_read(self, tmp_path):
        path = tmp_path / "run.json"
        with Trace(path) as trace:
            with span("a", "task", "n1"):
                pass
            with span("b", "task", "n2"):
                pass
        data = json.loads(path.read_text())
        spans = [event for event in data["traceEvents"] if event["ph"] == "X"]
        processes = {e["pid"]: e["args"]["name"] for e in data["traceEvents"] if e["name"] == "process_name"}
        assert [event["name"] for event in spans] == ["a", "b"]
        assert [processes[event["pid"]] for event in spans] == ["node n1", "node n2"]
        assert all(event["dur"] >= 0 and event["ts"] > 0 for event in spans)
        assert {e["tid"] for e in data["traceEvents"] if e["name"] == "thread_name"} == {
            e["tid"] for e in spans
        }
        before = path.read_bytes()
        with pytest.raises(OSError, match="missing"):
            trace.save(tmp_path / "missing" / "run.json")
        assert path.read_bytes() == before
        assert [entry.name for entry in tmp_path.iterdir()] == ["run.json"]

    def test_marks_that_never_came(self):
        trace = Trace()
        stack = SpanStack(trace, "n")
        for key in "abc":
            stack.begin(key, key)
        stack.end("b")
        stack.end("x")
        stack.end(error=ValueError("x"))
        stack.end()
        assert names(trace) == ["c", "b", "a"]
        assert trace.spans()[2].args == {"error": "ValueError: x"}


def _other():
    with span("other"):
        pass


class TestRuns:
    def run(self, *tasks, node=None):
        with TaskGroup() as group:
            for number, step in enumerate(tasks):
                Task(step=step, name=f"t{number}", node=node)
        with LocalSession() as session, Trace() as trace, contextlib.suppress(TaskGroupError):
            session.run(group)
        return trace

    def test_tasks_and_their_steps(self):
        trace = self.run(nothing, [nothing, execution_step("twice", nothing, num_iter=2)])
        assert sorted(names(trace, "task")) == ["local/t0", "local/t1"]
        assert sorted(names(trace, "step")) == ["nothing"] * 4 + ["sequence", "twice"]
        threads = {found.name: found.thread_id for found in trace.spans() if found.category == "task"}
        assert len(set(threads.values())) == 2

    def test_nodes(self):
        with TaskGroup() as group:
            for name in ("a", "b"):
                with Node(name):
                    Task(step=nothing, name="t")
        with LocalSession() as session, Trace() as trace:
            session.run(group)
        assert {found.node for found in trace.spans()} == {"a", "b"}

    def test_each_round_of_a_native_loop(self):
        with NetBuilder("n") as builder, ops.loop(3):
            ops.Const(1, "x")
            with ops.If(ops.Const(False)):
                ops.Const(2, "y")
            with ops.If(ops.Const(True)):
                ops.Const(2, "y")
        trace = self.run(builder)
        branches = [name for name in names(trace, "step") if "if" in name.lower()]
        assert len(branches) == 3

    def test_a_stop_and_a_failure_end_what_is_open(self):
        with NetBuilder("n") as builder, ops.loop(), ops.If(ops.Const(True)):
            ops.stop()
        stopped = self.run(builder)
        assert names(stopped) == ["n/loop", "n/loop/If", "n/loop", "n", "local/t0"]
        failed = self.run([nothing, boom, nothing])
        assert [found.name for found in failed.spans() if "error" in found.args]
        assert names(failed, "task") == ["local/t0"]

    def test_concurrent_parts(self):
        trace = self.run(concurrent(nothing, nothing))
        assert sorted(names(trace, "step")) == ["nothing", "nothing", "parts"]
        assert len({found.thread_id for found in trace.spans()}) == 3

    def test_saves(self, tmp_path):
        with Trace() as trace:
            jobcore.save(tmp_path / "a.zarr.zip", {"x": 1})
            jobcore.save_async(tmp_path / "b.zarr", {"x": 1}).wait()
            with pytest.raises(jobcore.errors.SaveError):
                jobcore.save(tmp_path / "missing" / "c.zarr.zip", {"x": 1})
        assert names(trace, "save") == ["write a.zarr.zip", "copy b.zarr", "write b.zarr"]
        assert trace.spans()[0].args == {"path": str(tmp_path / "a.zarr.zip")}

    def test_epochs(self, tmp_path):
        with jobcore.Job() as job:
            job.init_group.task(lambda ws: ws.feed("x", 1), name="init")
            jobcore.epoch_limiter(job, 2)
        manager = jobcore.MultiNodeCheckpointManager(str(tmp_path))
        with LocalSession() as session, Trace() as trace:
            jobcore.JobRunner(job, manager).train(session)
        saves = [found for found in trace.spans() if found.category == "save"]
        assert [(found.node, found.args["epoch"]) for found in saves] == [
            ("local", 0),
            ("local", 1),
            ("local", 2),
        ]
