"""The interpreter of programs: its ops against their Python kernels, and what it shares with everybody else."""

from __future__ import annotations

import _thread
import gc
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobcore import Counter, Timer, Workspace
from jobcore._fast.program import Program, native_kernel
from jobcore.errors import BlobKindError, BlobNotFoundError, BuildError, Cancelled, TimerStateError
from jobcore.runtime.conditions import set_flag, set_index
from program_tools import Code, Context

UNARY = ("Neg", "Not", "Copy")
BINARY = ("Add", "Sub", "Mul", "Div", "EQ", "NE", "LT", "LE", "GT", "GE", "And", "Or", "Xor")

integers = st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1)).map(np.int64)
scalars = st.one_of(
    st.booleans().map(np.bool_),
    integers,
    st.floats(allow_nan=True, width=64).map(np.float64),
    st.integers(-5, 5).map(np.int32),
    st.floats(-2, 2, width=32).map(np.float32),
    st.sampled_from([np.array([1, 2]), np.array([0.5, np.inf]), np.array([True, False]), np.uint64(2**63)]),
)


def outcome(program, values, rounds=1):
    """Blobs after a run, or the error that came out."""
    ws = Workspace()
    for name, value in values.items():
        ws.feed(name, value)
    try:
        for _ in range(rounds):
            program.run(ws, Context())
    except Exception as error:
        return type(error), str(error)
    return {
        name: (ws.blob(name).dtype, ws.blob(name).shape, ws.fetch(name).tobytes()) for name in ws.blob_names()
    }


def both_ways(op_type, inputs, outputs, values, **options):
    native = Code().op(op_type, inputs, outputs, **options).loop(3)
    python = Code().op(op_type, inputs, outputs, native=False, **options).loop(3)
    assert outcome(native, values) == outcome(python, values)
    return outcome(native, values)


class TestKernels:
    @given(op_type=st.sampled_from(BINARY), a=scalars, b=scalars, out=st.sampled_from(["z", "x", "y"]))
    def test_two_operands_give_what_the_python_kernel_gives(self, op_type, a, b, out):
        both_ways(op_type, ["x", "y"], [out], {"x": a, "y": b})

    @given(op_type=st.sampled_from(UNARY), a=scalars, out=st.sampled_from(["z", "x"]))
    def test_one_operand(self, op_type, a, out):
        if op_type == "Copy" and out == "x":
            return
        both_ways(op_type, ["x"], [out], {"x": a})

    @given(op_type=st.sampled_from(BINARY), a=integers, out=st.sampled_from(["z", "x"]))
    def test_one_blob_as_both_operands(self, op_type, a, out):
        if op_type not in ("And", "Or", "Xor"):
            both_ways(op_type, ["x", "x"], [out], {"x": a})

    @pytest.mark.parametrize("value", [True, -7, 2**63 - 1, 0.1, -0.0])
    @pytest.mark.parametrize(
        "before", [np.bool_(False), np.int64(5), np.float64(1.5), np.zeros(2), np.int32(1)]
    )
    def test_a_constant_takes_the_place_of_whatever_was_there(self, value, before):
        found = both_ways("Const", [], ["x"], {"x": before}, constant=value, value=value)
        assert found["x"] == (np.asarray(value).dtype, (), np.asarray(value).tobytes())

    @pytest.mark.parametrize(("a", "b"), [(7, 2), (-7, 2), (7, -2), (-(2**63), -1), (1, 0)])
    def test_integers_divide_as_in_python(self, a, b):
        both_ways("Div", ["x", "y"], ["z"], {"x": np.int64(a), "y": np.int64(b)})

    @pytest.mark.parametrize("op_type", ["CountUp", "CountDown", "RetrieveCount", "CheckCounterDone"])
    @pytest.mark.parametrize("start", [-1, 0, 1, 2, 2**63 - 1])
    def test_counters(self, op_type, start):
        results = []
        for native in (True, False):
            counter = Counter()
            counter.restore(start)
            ws = Workspace()
            ws.feed("c", counter)
            Code().op(op_type, ["c"], ["x"], native=native).loop(4).run(ws, Context())
            results.append((counter.retrieve(), ws.fetch("x").item(), ws.blob("x").dtype))
        assert results[0] == results[1]

    def test_a_counter_is_made_and_set_back(self):
        ws = Workspace()
        code = Code().op("CreateCounter", [], ["c"], init_count=3, constant=3).op("CountUp", ["c"], ["x"])
        code.loop(5).run(ws, Context())
        assert (ws["c"].retrieve(), ws["x"]) == (4, 3)
        for outputs in (["before"], []):
            Code().op("ResetCounter", ["c"], outputs, init_count=9, constant=9).loop(3).run(ws, Context())
            assert ws["c"].retrieve() == 9
        assert ws["before"] == 9

    def test_timers(self):
        ws = Workspace()
        code = (
            Code().op("TimerBegin", [], ["t"]).op("TimerGet", ["t"], ["a"]).op("TimerGetAndEnd", ["t"], ["b"])
        )
        code.op("TimerBegin", [], ["t"]).op("TimerEnd", ["t"]).loop(4).run(ws, Context())
        assert isinstance(ws["t"], Timer)
        assert ws["t"].count == 8
        assert 0 <= ws["a"] <= ws["b"]
        with pytest.raises(TimerStateError, match="stopped") as raised:
            Code().op("TimerEnd", ["t"]).program().run(ws, Context())
        assert raised.value.__notes__ == ["at op 0"]

    def test_an_op_type_without_a_native_kernel_has_none(self):
        assert native_kernel("GetAllBlobNames") is None
        assert native_kernel("CountUp") is not None


class TestControl:
    @pytest.mark.parametrize("count", [0, 1, 2, 1000])
    def test_a_loop_goes_round_as_often_as_it_was_told(self, count):
        ws = Workspace()
        ws.counter("c")
        Code().op("CountUp", ["c"], ["x"]).loop(count).run(ws, Context())
        assert ws["c"].retrieve() == count

    def test_a_jump_looks_at_the_blob(self):
        ws = Workspace()
        ws.feed("n", 5)
        code = (
            Code()
            .op("Const", [], ["one"], value=1, constant=1)
            .op("Const", [], ["zero"], value=0, constant=0)
        )
        code.op("Sub", ["n", "one"], ["n"]).op("LE", ["n", "zero"], ["done"]).jump_if(False, "done", 2)
        code.program().run(ws, Context())
        assert ws["n"] == 0

    def test_a_blob_that_is_missing_or_empty_counts_as_false(self):
        ws = Workspace()
        ws.create_blob("empty")
        for name in ("empty", "missing"):
            code = (
                Code()
                .jump_if(True, name, 2)
                .put("store_bool", blobs=("passed",), constant=True, payload=("p", "passed", set_flag))
            )
            code.program().run(ws, Context())
            assert ws["passed"]
            ws.remove_blob("passed")
        ws.feed("wrong", 1)
        with pytest.raises(BlobKindError, match="wrong"):
            Code().jump_if(True, "wrong", 1).program().run(ws, Context())

    def test_registers_reach_blobs(self):
        ws = Workspace()
        seen = []
        code = Code().put("set", register=1, constant=-1).put("set", register=0, constant=3).put("loop", 6)
        code.put("store_register", register=1, blobs=("i",), payload=("p", "i", set_index))
        code.call(lambda ws: seen.append(int(ws["i"]))).put("next", 2, 1)
        code.program(registers=2).run(ws, Context())
        assert seen == [-1, 0, 1]

    def test_values_and_parts(self):
        ws = Workspace()
        got = []
        code = Code().put("value", register=0, payload=("p", lambda ws: 3)).put("loop", 4)
        code.put("part", payload=(None, lambda step, ws, context: got.append((step, ws, context)), "s")).put(
            "jump", 1
        )
        context = Context()
        code.program(registers=1).run(ws, context)
        assert got == [("s", ws, context)] * 3

    @pytest.mark.parametrize(
        "row",
        [
            ("fly", 0, 0, (), (), None, None, None),
            ("jump", 9, 0, (), (), None, None, None),
            ("jump", -1, 0, (), (), None, None, None),
            ("loop", 0, 1, (), (), None, None, None),
            ("op", 0, 0, (1,), (), None, None, None),
            ("op", 0, 0, (0,), (), object(), None, None),
            ("op", 0, 0, (0,), (), None, "text", None),
            ("if_true", 0, 0, (), (), None, None, None),
        ],
        ids=lambda row: row[0],
    )
    def test_code_that_makes_no_sense_is_refused(self, row):
        with pytest.raises(BuildError):
            Program(("x",), 1, [row, ("end", 0, 0, (), (), None, None, None)])
        with pytest.raises(BuildError, match="end"):
            Program((), 0, [])


class TestFailures:
    def test_an_error_says_where_it_came_from(self):
        ws = Workspace()

        def fail(ws):
            raise ValueError("boom")

        for code, kind in (
            (Code().call(fail), ValueError),
            (Code().op("CountUp", ["nothing"], ["x"]), BlobNotFoundError),
            (Code().op("Const", [], ["s"], value="text").op("CountUp", ["s"], ["x"]), BlobKindError),
        ):
            with pytest.raises(kind) as raised:
                code.program().run(ws, Context())
            assert raised.value.__notes__ == [
                f"at {'call' if kind is ValueError else 'op'} {len(code.rows) - 1}"
            ]

    def test_an_error_in_a_round_ends_the_loop(self):
        ws = Workspace()
        ws.feed("x", 3)
        ws.feed("one", 1)
        ws.feed("six", 6)
        code = Code().op("Sub", ["x", "one"], ["x"]).op("Div", ["six", "x"], ["y"])
        with pytest.raises(Exception, match="division by zero"):
            code.loop(100).run(ws, Context())
        assert (ws["x"], ws["y"]) == (0, 6)


class TestOthers:
    """Blobs that a program uses belong to everybody else as well."""

    def test_a_view_taken_before_or_during_a_run_never_changes(self):
        ws = Workspace()
        ws.counter("c")
        ws.feed("x", np.int64(-1))
        before, during = ws.view("x"), []

        def look(ws):
            during.append((ws.view("x"), int(ws.fetch("x")), ws.blob("x").value))

        Code().op("CountUp", ["c"], ["x"]).call(look).loop(50).run(ws, Context())
        assert before == -1
        assert [(int(view), number, int(value)) for view, number, value in during] == [
            (i, i, i) for i in range(50)
        ]

    def test_what_others_feed_is_seen_at_once(self):
        ws = Workspace()
        ws.feed("stop", False)
        ws.counter("c")
        code = Code().op("CountUp", ["c"], ["x"]).jump_if(False, "stop", 3).put("jump", 4).put("jump", 0)
        program = code.program()
        thread = threading.Thread(target=program.run, args=(ws, Context()))
        thread.start()
        for value in (False, np.bool_(False), np.array(False)):
            ws.feed("stop", value)
        ws.blob("stop").reset()
        ws.feed("stop", True)
        thread.join(60)
        assert not thread.is_alive()

    def test_blobs_that_are_removed_are_looked_up_again(self):
        ws = Workspace()
        ws.counter("c")

        def replace(ws):
            if int(ws["x"]) == 2:
                ws.remove_blob("c")
                ws.counter("c", 100)
                ws.remove_blob("x")
                ws.feed("x", 0)

        Code().op("CountUp", ["c"], ["x"]).call(replace).loop(5).run(ws, Context())
        assert (ws["c"].retrieve(), ws["x"]) == (102, 101)

    def test_a_blob_of_another_kind_is_taken_over(self):
        ws = Workspace()
        ws.counter("c")
        values = iter(["text", np.zeros(3), np.float32(1), Counter(), None])
        code = Code().op("CountUp", ["c"], ["x"]).call(lambda ws: ws.feed("x", next(values)))
        code.loop(5).run(ws, Context())
        assert ws.blob("x").kind == "state"
        Code().op("CountUp", ["c"], ["x"]).loop(3).run(ws, Context())
        assert ws["x"] == 7

    def test_a_bound_blob_gets_the_values(self):
        ws = Workspace()
        ws.counter("c")
        array = np.zeros((), np.int64)
        ws.bind("x", array)
        Code().op("CountUp", ["c"], ["x"]).loop(10).run(ws, Context())
        assert array == 9

    def test_two_programs_lose_no_count(self):
        ws = Workspace()
        ws.counter("c")
        program = Code().op("CountUp", ["c"], ["x"]).loop(200_000)
        threads = [threading.Thread(target=program.run, args=(Workspace(ws), Context())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ws["c"].retrieve() == 800_000

    def test_a_feed_after_the_run_writes_in_place_again(self):
        ws = Workspace()
        ws.counter("c")
        Code().op("CountUp", ["c"], ["x"]).loop(3).run(ws, Context())
        array = ws.blob("x").value
        address = array.ctypes.data
        del array
        ws.feed("x", 5)
        assert ws.blob("x").value.ctypes.data == address

    def test_nothing_is_kept(self):
        ws = Workspace()
        program = Code().op("CreateCounter", [], ["c"]).op("CountUp", ["c"], ["x"]).loop(3)
        program.run(ws, Context())
        gc.collect()
        before = len(gc.get_objects())
        for _ in range(200):
            program.run(Workspace(ws), Context())
        gc.collect()
        assert len(gc.get_objects()) - before < 20


class TestStopping:
    @pytest.mark.parametrize("body", [[], ["CountUp"], ["call"]])
    def test_an_endless_loop_ends_when_it_is_told_to(self, body):
        ws = Workspace()
        ws.counter("c")
        code = Code()
        for what in body:
            if what == "call":
                code.call(lambda ws: None)
            else:
                code.op(what, ["c"], ["x"])
        code.put("jump", 0)
        context = Context()
        threading.Timer(0.05, context.flag.set).start()
        with pytest.raises(Cancelled):
            code.program().run(ws, context)

    def test_ctrl_c_is_heard_in_a_long_round(self):
        ws = Workspace()
        ws.counter("c")
        code = Code()
        for _ in range(1000):
            code.op("CountUp", ["c"], ["x"])
        code.put("jump", 0)
        threading.Timer(0.05, _thread.interrupt_main).start()
        with pytest.raises(KeyboardInterrupt):
            code.program().run(ws, Context())

    def test_ctrl_c_ends_a_loop_that_never_leaves_native_code(self):
        ws = Workspace()
        program = Code().put("jump", 0).program()
        threading.Timer(0.05, _thread.interrupt_main).start()
        with pytest.raises(KeyboardInterrupt):
            program.run(ws, Context())

    def test_other_threads_get_their_turn(self):
        ws = Workspace()
        seen = threading.Event()
        context = Context()
        ended = []

        def run():
            # `id` is C code: nothing in this loop would ever let the interpreter switch threads.
            try:
                Code().put("call", payload=("p", id)).put("jump", 0).program().run(ws, context)
            except Cancelled:
                ended.append(True)

        runner = threading.Thread(target=run)
        runner.start()
        threading.Thread(target=seen.set).start()
        assert seen.wait(60)
        context.flag.set()
        runner.join(60)
        assert ended == [True]
