"""What a run looks like: the lines of its events, the live display on a terminal, and the stand-in for its streams."""

from __future__ import annotations

import io
import os
import re
import threading
import warnings

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import jobcore
from cli_tools import DEAF, JOB, Screen, terminal
from jobcore.cli import text
from jobcore.cli.above import Above
from jobcore.cli.app import app
from jobcore.cli.display import PlainDisplay, warnings_as_lines
from jobcore.cli.live import panel
from jobcore.cli.story import Story, epoch_limit
from jobcore.epoch_saver import CheckpointWarning
from jobcore.events import RunEvent


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def told(*events: RunEvent, total: int | None = 15, silent: tuple[str, ...] = ()) -> list[str]:
    story = Story("job.py", "runs/job")
    story.total = total
    story.silent = frozenset(silent)
    return [line for event in events for line in story.tell(event)]


def epoch(number: int, outputs: dict[str, object] | None = None, status: str = "saved") -> list[RunEvent]:
    return [
        RunEvent("epoch_started", number, "epoch"),
        RunEvent("epoch_finished", number, "epoch", 0.41, outputs=outputs),
        RunEvent("group_started", number, "save"),
        RunEvent("save_finished", number, "save", 0.012, 52_100 if status == "saved" else 0, status),
    ]


# -- the story


def test_an_epoch_and_its_save_share_a_line():
    outputs = {"loss": np.array(0.12345), "accuracy": np.float32(0.9583)}
    assert told(*epoch(3, outputs)) == [
        "epoch 3/15: 0.410 s, loss 0.1235, accuracy 0.9583; saved 52.1 kB in 0.012 s"
    ]


def test_a_whole_run_is_told_from_its_start_to_its_end():
    story = Story("job.py", "runs/job")
    story.total, story.silent = 2, frozenset({"exit"})
    events = [
        RunEvent("run_started"),
        RunEvent("group_started", group="setup"),
        RunEvent("group_finished", group="setup", seconds=1.5),
        RunEvent("group_started", 1, "load"),
        RunEvent("group_finished", 1, "load", 0.1, 1000),
        RunEvent("resumed", 1, "load", 0.1, 1000),
        *epoch(2),
        RunEvent("stopped", 2, message="epoch_limiter(2)"),
        RunEvent("group_finished", group="download", seconds=12.34),
        RunEvent("group_finished", group="exit", seconds=0.1),
        RunEvent("run_finished", 2, "", 123.4, 0, "completed"),
    ]
    assert [line for event in events for line in story.tell(event)] == [
        "run: job.py, checkpoints in runs/job",
        "setup: 1.50 s",
        "resumed from epoch 1/2: loaded 1.00 kB in 0.100 s",
        "epoch 2/2: 0.410 s; saved 52.1 kB in 0.012 s",
        "stopped at epoch 2/2: epoch_limiter(2)",
        "download: 12.3 s",
    ]
    assert story.ending() == "completed: epoch 2/2 in 123 s; checkpoints in runs/job"


@pytest.mark.parametrize(
    ("status", "says"), [("failed", "not saved (failed)"), ("skipped", "not saved (skipped)")]
)
def test_an_epoch_that_was_not_saved_says_so(status, says):
    assert told(*epoch(3, status=status)) == [f"epoch 3/15: 0.410 s; {says}"]


def test_failed_saves_stand_in_the_last_line():
    story = Story("job.py", "runs/job")
    for event in [
        *epoch(1),
        *epoch(2, status="failed"),
        RunEvent("run_finished", 2, "", 1.0, 0, "completed"),
    ]:
        story.tell(event)
    assert story.ending() == (
        "completed: epoch 2 in 1.00 s; 1 save failed, newest saved: epoch 1; checkpoints in runs/job"
    )


def test_an_interrupted_save_does_not_swallow_the_numbers_of_its_epoch():
    events = [*epoch(3, {"loss": 0.5})[:3], RunEvent("run_finished", 2, "", 1.0, 0, "interrupted")]
    assert told(*events) == ["epoch 3/15: 0.410 s, loss 0.5; not saved"]


@pytest.mark.parametrize(
    ("conditions", "limit"),
    [
        ([], None),
        (["accuracy_reached"], None),
        (["epoch_limiter(15)"], 15),
        (["patience", "epoch_limiter(20)", "epoch_limiter(7)#2"], 7),
        (["my_epoch_limiter(3)", "epoch_limiter(3) or so"], None),
    ],
)
def test_the_number_of_epochs_is_that_of_the_tightest_limiter(conditions, limit):
    assert epoch_limit(conditions) == limit


@pytest.mark.parametrize(
    ("total", "says"), [(15, "epoch 3/15"), (3, "epoch 3/3"), (2, "epoch 3"), (None, "epoch 3")]
)
def test_an_epoch_is_given_with_the_total_when_that_makes_sense(total, says):
    assert told(*epoch(3), total=total)[0].startswith(f"{says}: ")


def test_the_snapshot_of_a_resumed_run_starts_at_the_right_epoch_and_learns_how_long_is_left():
    clock = Clock()
    story = Story("job.py", "runs/job", clock=clock)
    story.total = 10
    story.tell(RunEvent("resumed", 6, "load", 0.1, 1000))
    assert (story.snapshot().done, story.snapshot().left_s) == (6, None)
    for event in epoch(7, {"loss": 1.0}):
        story.tell(event)
    now = story.snapshot()
    assert (now.done, now.total, now.last) == (7, 10, "0.410 s, loss 1")
    assert now.left_s == pytest.approx(3 * 0.422)
    assert now.saved == "52.1 kB in 1 checkpoint, the last 52.1 kB in 0.012 s (4.34 MB/s)"
    story.tell(RunEvent("epoch_started", 8, "epoch"))
    clock.now += 0.1
    assert story.snapshot().left_s == pytest.approx(3 * 0.422 - 0.1)
    clock.now += 99
    assert story.snapshot().left_s == pytest.approx(2 * 0.422)


def test_signs_of_life_come_evenly_while_bytes_move_and_ever_more_rarely_while_training():
    def signs(event: RunEvent) -> list[str]:
        clock = Clock()
        story = Story("job.py", "runs/job", clock=clock)
        story.tell(event)
        found = []
        for _ in range(60):
            found.append(story.sign_of_life())
            clock.now += 1
        return [line for line in found if line]

    assert signs(RunEvent("group_started", 3, "load", size_bytes=4_200_000_000)) == [
        f"loading epoch 3 (4.20 GB): {n} s so far" for n in (10, 20, 30, 40, 50)
    ]
    assert signs(RunEvent("epoch_started", 4, "epoch")) == [f"epoch 4: {n} s so far" for n in (10, 20, 40)]


def test_labels_and_values_cannot_break_a_line_or_paint_the_terminal():
    (line,) = told(*epoch(1, {"a\nb": "x\x1b[31my", "big": np.zeros((3, 4)), "no": None}))
    assert line == r"epoch 1/15: 0.410 s, a\nb x\x1b[31my, big float64 (3, 4), no -; saved 52.1 kB in 0.012 s"


# -- numbers and names as text


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (9_994, "9.99 kB"),
        (9_996, "10.0 kB"),
        (99_960, "100 kB"),
        (999_600, "1.00 MB"),
        (52_100, "52.1 kB"),
        (1 << 30, "1.07 GB"),
        (10**21, "1000 EB"),
    ],
)
def test_sizes(number, says):
    assert text.size(number) == says


@given(st.integers(0, 10**20))
def test_sizes_are_right_within_their_three_digits(number):
    shown, unit = text.size(number).split()
    power = ["B", "kB", "MB", "GB", "TB", "PB", "EB"].index(unit)
    assert float(shown) * 1000**power == pytest.approx(number, rel=0.006)


@pytest.mark.parametrize(
    ("duration", "says"),
    [(0.0, "0.000 s"), (0.9996, "1.00 s"), (9.996, "10.0 s"), (99.96, "100 s"), (7200, "7200 s")],
)
def test_durations_are_always_in_seconds(duration, says):
    assert text.seconds(duration) == says


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (0.12345, "0.1235"),
        (np.float16(0.5), "0.5"),
        (1e-7, "1e-07"),
        (12345.6, "12346"),
        (float("nan"), "nan"),
        (-float("inf"), "-inf"),
        (True, "true"),
        (np.array(False), "false"),
        (7, "7"),
        (10**99, "an integer of many digits"),
        (1 + 2j, "1+2j"),
        ("word", "word"),
        ("x" * 100, "x" * 57 + "..."),
        (b"abc", "3 bytes"),
        (None, "-"),
        (np.array([1.0, 2.5]), "[1, 2.5]"),
        (np.arange(5), "int64 (5,)"),
        ([0.25, None], "[0.25, -]"),
        ([1, 2, 3, 4, 5], "[1, 2, 3, 4, ...]"),
        ({"a": 1}, "{'a': 1}"),
        (object(), "<object>"),
    ],
)
def test_output_values_are_short(found, says):
    assert text.value(found) == says


def test_a_table_is_aligned_whatever_the_width_of_its_characters():
    lines = text.table(("name", "bytes"), [("重み", "7"), ("w", "1,000")], right=[1])
    assert lines == ["name  bytes", "重み      7", "w     1,000"]
    assert text.table(("a", "b"), [], right=[1]) == ["a  b"]


# -- plain lines


def test_plain_lines_go_on_when_nobody_reads_them():
    class Closed(io.StringIO):
        def write(self, _text):
            raise BrokenPipeError

    with PlainDisplay(Story("job.py", "runs/job"), Closed()) as display:
        for event in epoch(1):
            display(event)
        display.line("more")


def test_a_long_silence_is_broken_by_a_sign_of_life():
    clock, said = Clock(), threading.Event()

    class Stream(io.StringIO):
        def flush(self):
            said.set()

    stream = Stream()
    with PlainDisplay(Story("job.py", "runs/job", clock=clock), stream, tick_s=0.001) as display:
        display(RunEvent("group_started", group="setup"))
        clock.now += 10
        assert said.wait(60)
    assert stream.getvalue() == "setup: 10 s so far\n"


def test_warnings_of_the_library_are_lines_that_come_once_and_others_stay_what_they_are(capsys, monkeypatch):
    others: list[str] = []
    monkeypatch.setattr(warnings, "showwarning", lambda message, *rest: others.append(str(message)))
    with PlainDisplay(Story("job.py", "runs/job"), io.StringIO()) as display, warnings_as_lines(display):
        for message in ("epoch 3 is [red]damaged[/]\nand passed over", "another") * 2:
            warnings.warn(message, CheckpointWarning, stacklevel=1)
        warnings.simplefilter("always")
        warnings.warn("mine", UserWarning, stacklevel=1)
    assert capsys.readouterr().err.splitlines() == [
        "warning: epoch 3 is [red]damaged[/] and passed over",
        "warning: another",
    ]
    assert others == ["mine"]


# -- the stand-in for a stream


def shown_above(*writes: str) -> tuple[list[str], str, str]:
    """Return the lines shown while the display was there, the unfinished line, and what was written after it."""
    stream, lines = io.StringIO(), []
    above = Above(stream)
    above.emit = lines.append
    for part in writes:
        assert above.write(part) == len(part)
    partial = above.partial
    above.release()
    above.write("after")
    return lines, partial, stream.getvalue()


@pytest.mark.parametrize(
    ("writes", "lines", "partial"),
    [
        (["a\nb", "c\n"], ["a", "bc"], ""),
        (["a\n\nb"], ["a", ""], "b"),
        (["10 %", "\r20 %", "\r30 %"], [], "30 %"),
        (["10 %\r", "20 %\r"], [], "20 %\r"),
        (["10 %\r", "done\n"], ["done"], ""),
        (["dos\r", "\nx"], ["dos"], "x"),
    ],
)
def test_whole_lines_are_shown_above_and_a_redrawn_one_stays_one(writes, lines, partial):
    assert shown_above(*writes) == (lines, partial, partial + "after")


@given(st.lists(st.text("ab\n", max_size=5), max_size=20))
def test_lines_come_out_as_they_went_in_however_they_are_cut(writes):
    lines, partial, _ = shown_above(*writes)
    assert "\n".join([*lines, partial]) == "".join(writes)


def test_threads_do_not_mix_their_lines(together):
    above, lines = Above(io.StringIO()), []
    above.emit = lines.append
    together(4, lambda n: [above.write(f"{n}" * 20 + "\n") for _ in range(100)])
    assert sorted(lines) == sorted(f"{n}" * 20 for n in range(4) for _ in range(100))


def test_a_forked_child_writes_to_the_stream_itself():
    reader, writer = os.pipe()
    with os.fdopen(reader) as read, os.fdopen(writer, "w") as stream:
        above = Above(stream)
        above.emit = lambda line: pytest.fail(f"the parent's display got {line!r}")
        # Held by a thread of the parent's that does not exist in the child: nobody would ever let go of it.
        with above._lock:
            above._pid = -1
            above.write("hello\n")
            above.flush()
        stream.close()
        assert read.read() == "hello\n"


# -- the live display


@pytest.fixture
def job(tmp_path):
    (tmp_path / "job.py").write_text(JOB)
    return tmp_path


FIGURE = re.compile(r"\d+(\.\d+)? (s|kB/s|kB|B)\b")


def without_figures(lines: list[str]) -> list[str]:
    return [FIGURE.sub("#", re.sub(r"loss [\d.]+", "loss #", line)) for line in lines]


def test_a_run_on_a_terminal_leaves_its_lines_and_nothing_of_the_display(job):
    with terminal("run", "job.py", "--set", "pause=0.4", "--set", "words=[red]said[/red]", cwd=job) as screen:
        assert screen.finish() == 0
    final = screen.screen()
    assert final.cursor_shown
    assert without_figures(final.text()) == [
        "run: job.py, checkpoints in runs/job",
        "init: #",
        "epoch 0/3: saved # in #",
        "[red]said[/red]",
        "epoch 1/3: #, loss #; saved # in #",
        "[red]said[/red]",
        "epoch 2/3: #, loss #; saved # in #",
        "[red]said[/red]",
        "epoch 3/3: #, loss #; saved # in #",
        "stopped at epoch 3/3: epoch_limiter(3)",
        "completed: epoch 3/3 in #; checkpoints in runs/job",
    ]
    assert re.search(r"epoch 2/3.* 1/3 .*elapsed.*left", screen.output)
    assert re.search(r"last epoch: [\d.]+ s, loss [\d.]+", screen.output)
    assert re.search(
        r"saved: [\d.]+ kB in 2 checkpoints, the last [\d.]+ kB in [\d.]+ s \([\d.]+ .?B/s\)", screen.output
    )


def test_a_resumed_run_shows_the_right_epoch_of_the_right_total(job):
    CliRunner().invoke(app, ["run", str(job / "job.py"), "--dir", str(job / "runs" / "job")])
    with terminal("run", "job.py", "--set", "epochs=5", "--set", "pause=0.4", cwd=job) as screen:
        assert screen.finish() == 0
    assert re.search(r"epoch 4/5.* 3/5 ", screen.output)
    assert "resumed from epoch 3/5" in screen.output
    assert not re.search(r" [012]/5 .*elapsed", screen.output.split("resumed from")[1])


def test_ctrl_c_on_a_terminal_shows_that_it_was_heard_and_gives_the_terminal_back(job):
    with terminal("run", "job.py", "--set", "pause=0.5", "--set", "epochs=99", cwd=job) as screen:
        screen.until(lambda output: re.search("epoch 2/99.*elapsed", output))
        screen.type("\x03")
        assert screen.finish() == 130
    final = screen.screen()
    assert final.cursor_shown
    assert final.text()[-3:] == [
        "interrupted in epoch 2/99",
        "epoch 1 is complete and safe in runs/job",
        "to go on from it: jobcore run job.py --set pause=0.5 --set epochs=99",
    ]


def test_ctrl_c_says_at_once_that_it_waits_for_tasks_which_take_their_time(job):
    (job / "job.py").write_text(DEAF)
    with terminal("run", "job.py", cwd=job) as screen:
        screen.until(lambda output: "deaf task runs" in output)
        screen.type("\x03")
        screen.until(lambda output: "stopping the running tasks" in output)
        (job / "go").touch()
        assert screen.finish() == 130
    assert screen.screen().text()[-1] == "to go on from it: jobcore run job.py"


def test_a_terminal_that_goes_away_does_not_end_the_run(job):
    with terminal(
        "run", "job.py", "--set", "pause=0.2", "--set", "words=hi", cwd=job, hangup=False
    ) as screen:
        screen.until(lambda output: "epoch 1/3" in output)
        screen.hang_up()
        assert screen.process.wait() == 0
    assert (job / "runs" / "job" / "epoch.3.1.json").exists()


@pytest.mark.parametrize(
    "environment", [{"TERM": "dumb"}, {"TERM": None}, {}], ids=["dumb", "no TERM", "--plain"]
)
def test_terminals_without_a_cursor_get_plain_lines(job, environment):
    plain = [] if environment else ["--plain"]
    with terminal("run", "job.py", *plain, cwd=job, **environment) as screen:
        assert screen.finish() == 0
    assert "\x1b" not in screen.output
    assert "completed: epoch 3/3" in screen.output


def test_no_color_leaves_no_colour(job):
    with terminal("run", "job.py", "--set", "pause=0.3", cwd=job, NO_COLOR="1") as screen:
        assert screen.finish() == 0
    assert not re.search(r"\x1b\[[\d;]*3[0-8][\d;]*m", screen.output)
    with terminal("ls", "runs/job", cwd=job, NO_COLOR="1") as screen:
        assert screen.finish() == 0
    assert "\x1b" not in screen.output


def test_a_terminal_without_utf8_gets_ascii(job):
    with terminal("run", "job.py", "--set", "pause=0.3", cwd=job, PYTHONIOENCODING="ascii") as screen:
        assert screen.finish() == 0
    assert screen.output.isascii()
    assert "completed: epoch 3/3" in screen.output


def test_a_narrow_terminal_keeps_its_screen_in_order(job):
    with terminal("run", "job.py", "--set", "pause=0.3", cwd=job, columns=20) as screen:
        assert screen.finish() == 0
    assert screen.screen().text()[-1].startswith("completed: epoch 3/3")


def test_errors_sent_to_a_file_stay_out_of_the_screen(job):
    (job / "job.py").write_text(JOB.replace("print(words)", "print(words, file=__import__('sys').stderr)"))
    with (
        (job / "errors").open("w") as errors,
        terminal("run", "job.py", "--set", "words=oops", cwd=job, stderr=errors.fileno()) as screen,
    ):
        assert screen.finish() == 0
    assert (job / "errors").read_text() == "oops\n" * 3
    assert "oops" not in screen.output


@pytest.mark.parametrize("to_file", [False, True], ids=["both on the terminal", "output in a file"])
def test_a_long_verification_shows_a_bar_and_leaves_its_lines(job, to_file):
    jobcore.save(job / "large.zarr.zip", {f"[red]{n}[/red]": np.zeros(5 << 20) for n in range(2)})
    with (job / "out").open("w") as out:
        descriptor = out.fileno() if to_file else None
        with terminal("verify", "large.zarr.zip", cwd=job, stdout=descriptor) as screen:
            assert screen.finish() == 0
    line = "ok: large.zarr.zip: 2 blobs, 83.9 MB"
    assert (job / "out").read_text() == (line + "\n" if to_file else "")
    assert screen.screen().text() == ([] if to_file else [line])
    assert screen.screen().cursor_shown
    assert "/83.9 MB" in screen.output


def test_the_panel_keeps_square_brackets_and_redrawn_lines():
    from rich.console import Console
    from rich.spinner import Spinner

    story = Story("job.py", "runs/job")
    story.total = 15
    for event in epoch(3, {"[bold]loss[/bold]": 0.5}):
        story.tell(event)
    console = Console(file=io.StringIO(), width=120, height=20)
    console.print(panel(story.snapshot(), ["[1/9] batches"], Spinner("line")))
    shown = console.file.getvalue()
    assert "[1/9] batches" in shown
    assert "[bold]loss[/bold] 0.5" in shown
    assert "3/15" in shown


def test_the_screen_of_these_tests_understands_what_it_is_fed():
    screen = Screen()
    screen.feed("one\r\ntwo\r\x1b[2K\x1b[1A\x1b[2Kthree\x1b[31m!\x1b[0m\r\nT")
    assert screen.text() == ["three!", "T"]
    for bad in ("\x1b]0;title\x07", "\x1b[5D"):
        with pytest.raises(AssertionError, match="not known"):
            screen.feed(bad)
