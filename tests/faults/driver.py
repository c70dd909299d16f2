"""Lets each call of a scenario have each fault in turn; run by ``fault_tools.py`` with the layer preloaded.

    python driver.py SCENARIO FOLDER [--container C] [--not-durable] [--most N] [--names A,B] [--trace]

One process does it all, so that a point costs milliseconds; only a point that kills gets a child of its own. Prints
one line of JSON: the calls of an undisturbed run, how many points there were, how they ended, and what was wrong. With
``--trace`` the scenario is only done once, undisturbed, and the calls are printed.
"""

from __future__ import annotations

import argparse
import errno
import faulthandler
import gc
import json
import os
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from layer import Call, Kind, Layer
from scenarios import SCENARIOS, Ended, Scenario

HANGS_AFTER = 60  # seconds; a point takes a few hundredths of one
RUNS = 6  # undisturbed ones, of which the one with the fewest calls counts


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to a call, and what must come of it: ``well``, ``error``, either of them, or ``death``."""

    kind: Kind
    value: int
    expected: str
    lasts: bool = False  # whether all later calls of the name have it as well

    def __str__(self) -> str:
        named = self.kind in (Kind.FAIL, Kind.LATE)
        value = errno.errorcode[self.value] if named else self.value
        return f"{self.kind.name} {value}{' from there on' if self.lasts else ''}"


def fails(expected: str, *codes: int) -> list[Fault]:
    return [Fault(Kind.FAIL, code, expected) for code in codes]


KILLS = [Fault(Kind.KILL_BEFORE, 0, "death"), Fault(Kind.KILL_AFTER, 0, "death")]
SHORT = [Fault(Kind.SHORT, count, "well") for count in (0, 1, 777)]
INTERRUPT = [Fault(Kind.SIGNAL, signal.SIGINT, "either")]
LOOKS = fails("either", errno.EIO, errno.EACCES)
SYNCS = fails("error", errno.EIO, errno.ENOSPC, errno.EDQUOT) + fails("well", errno.EINTR, errno.EINVAL)
WRITES = [
    *fails("error", errno.EIO, errno.ENOSPC, errno.EDQUOT),
    *fails("well", errno.EINTR),
    # A direct write is repeated through the page cache; a plain one has failed.
    *fails("either", errno.EINVAL),
    *SHORT,
    *INTERRUPT,
    Fault(Kind.FLIP, 0, "either"),
    Fault(Kind.KILL_HALF, 0, "death"),
]
READS = [
    # What cannot be read may be tried again, once, to find out what is wrong with it.
    *fails("either", errno.EIO),
    Fault(Kind.FAIL, errno.EIO, "error", lasts=True),
    Fault(Kind.END, 0, "either"),
    Fault(Kind.END, 0, "error", lasts=True),
    Fault(Kind.FLIP, 0, "either"),
    *fails("well", errno.EINTR),
    *SHORT,
]
NAMING = [*fails("error", errno.EIO, errno.ENOSPC, errno.EACCES), Fault(Kind.LATE, errno.EIO, "either")]

FAULTS: dict[str, list[Fault]] = {
    "open": fails("error", errno.EIO, errno.EMFILE, errno.EACCES) + fails("well", errno.EINTR),
    "opendir": fails("error", errno.EIO, errno.EMFILE),
    "close": fails("either", errno.EIO, errno.EINTR),
    "write": WRITES,
    "pwrite": WRITES,
    "read": READS,
    "pread": READS,
    "copy": fails("either", errno.EIO, errno.ENOSPC, errno.EINVAL),
    "ftruncate": fails("error", errno.EIO) + fails("well", errno.EINTR),
    "fallocate": [
        *fails("either", errno.EIO),
        *fails("error", errno.ENOSPC, errno.EDQUOT),
        *fails("well", errno.EINTR, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS),
    ],
    "fsync": SYNCS + INTERRUPT,
    "fdatasync": SYNCS + INTERRUPT,
    "syncfs": SYNCS,
    "sync_file_range": fails("either", errno.EIO) + fails("well", errno.EINVAL, errno.ENOSYS),
    "rename": NAMING,
    "renameat2": [*NAMING, *fails("well", errno.EINVAL, errno.ENOSYS), *INTERRUPT],
    "link": [*NAMING, *fails("either", errno.EPERM, errno.EMLINK)],
    "unlink": fails("either", errno.EIO, errno.EACCES),
    "rmdir": fails("either", errno.EIO),
    "mkdir": fails("error", errno.EIO, errno.ENOSPC),
    "chmod": fails("either", errno.EIO, errno.EPERM),
    "setfl": fails("well", errno.EINVAL) + fails("either", errno.EIO),
    "stat": LOOKS,
}
#: A call of any name fails, and all after it.
DEAD_DISK = Fault(Kind.FAIL, errno.EIO, "either")


def points(calls: list[Call], most: int, names: set[str]) -> Iterator[tuple[str, int, Fault]]:
    """Give name, number and fault of each point; `most` numbers of each name and fault, 0 for all."""
    counted = Counter(call.name for call in calls if call.name in names or not names)
    for name, count in sorted(counted.items()):
        for fault in FAULTS[name] + KILLS:
            for at in chosen(count, most):
                yield name, at, fault
    for at in chosen(len(calls), most):
        yield "", at, DEAD_DISK


def chosen(count: int, most: int) -> list[int]:
    if most <= 0 or count <= most:
        return list(range(1, count + 1))
    # The first and the last are where things begin and end: always among them.
    return (
        sorted({1 + round(step * (count - 1) / (most - 1)) for step in range(most)}) if most > 1 else [count]
    )


class Driver:
    """Runs the points of one scenario.

    Parameters
    ----------
    scenario
        What is done, and what must hold after it.
    layer
        The layer below it.
    """

    def __init__(self, scenario: Scenario, layer: Layer) -> None:
        self.scenario = scenario
        self.layer = layer
        self.ends: Counter[str] = Counter()
        self.problems: list[str] = []
        self.points = 0

    def trace(self) -> list[Call]:
        self.scenario.prepare()
        self.undisturbed()  # imports, caches and pools are there from now on
        # Where memory lies decides how large reads are: the numbers are those that every run has.
        return min((self.undisturbed() for _ in range(RUNS)), key=len)

    def run(self, most: int, names: set[str]) -> dict[str, object]:
        calls = self.trace()
        for name, at, fault in points(calls, most, names):
            self.points += 1
            # Which thread does what changes the number of calls, most of all the last of them: where a run had no call
            # of that number, an earlier one has the fault, down to the first.
            while not self.point(name, at, fault):
                if at == 1:
                    self.ends["no such call"] += 1
                    break
                at = at * 3 // 4
        signal.alarm(0)
        return {
            "calls": dict(Counter(call.name for call in calls)),
            "points": self.points,
            "ends": dict(self.ends),
            "problems": self.problems,
        }

    def undisturbed(self) -> list[Call]:
        self.layer.trace()
        self.scenario.act()
        calls = self.layer.trace()
        self.scenario.check(Ended())
        self.scenario.restore()
        return calls

    def point(self, name: str, at: int, fault: Fault) -> bool:
        """Return whether there was a call that had the fault."""
        signal.alarm(HANGS_AFTER)
        label = f"{name or 'any'} {at}, {fault}"
        Path(f"{self.scenario.folder}.point").write_text(label)
        before = open_things()
        kills = fault.expected == "death"
        ended, fired = self.in_child(name, at, fault) if kills else self.here(name, at, fault)
        if fired:
            self.ends[ended.word()] += 1
        try:
            expected = self.expected(name, fault)
            if fired and expected != "either":
                assert ended.word() == expected, f"expected {expected}, found {ended.word()}"
            if not kills:
                assert settled(before), f"expected {before} descriptors and threads, found {open_things()}"
            self.scenario.check(ended)
        except Exception as error:
            told = f"\n  after {ended.error!r}" if ended.error is not None else ""
            self.problems.append(f"{label}: {''.join(traceback.format_exception(error)[-3:])}{told}")
        self.scenario.restore()
        return bool(fired)

    def expected(self, name: str, fault: Fault) -> str:
        if name in self.scenario.lenient and fault.expected != "death":
            return "either"
        return fault.expected if self.scenario.strict or fault.expected != "error" else "either"

    def here(self, name: str, at: int, fault: Fault) -> tuple[Ended, int]:
        ended = Ended(fault.value if fault.kind in (Kind.FAIL, Kind.LATE) else 0, lasts=not name)
        ended.late = fault.kind is Kind.LATE
        self.layer.trace()
        self.layer.arm(name, at, fault.kind, fault.value, lasts=fault.lasts or not name)
        try:
            self.scenario.act()
        except (Exception, KeyboardInterrupt) as error:
            ended.error = error
        fired = self.layer.disarm()
        ended.calls = self.layer.trace()
        forget(ended.error)
        return ended, fired

    def in_child(self, name: str, at: int, fault: Fault) -> tuple[Ended, int]:
        child = os.fork()
        if child == 0:
            signal.alarm(HANGS_AFTER)
            code = 2
            try:
                self.layer.arm(name, at, fault.kind, fault.value)
                self.scenario.act()
                code = 0
            finally:
                os._exit(code)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status not in (0, -signal.SIGKILL):
            self.problems.append(f"{name} {at}, {fault}: the child ended with {status}")
        return Ended(died=status == -signal.SIGKILL), status == -signal.SIGKILL


def forget(error: BaseException | None) -> None:
    """Drop the frames of an error and of what it holds, so that only a leak keeps a file open."""
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is None or one.__traceback__ is None:
            continue
        one.__traceback__ = None
        waiting += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]


def open_things() -> tuple[int, int]:
    return len(list(Path("/proc/self/fd").iterdir())), len(list(Path("/proc/self/task").iterdir()))


def settled(before: tuple[int, int]) -> bool:
    # A thread that was joined is listed until the system has buried it; a cycle may hold a file for a while.
    for _ in range(50):
        if open_things() <= before:
            return True
        gc.collect()
        time.sleep(0.01)
    return all(now <= then for now, then in zip(open_things(), before, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario", choices=sorted(SCENARIOS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--container", default="zarr.zip")
    parser.add_argument("--not-durable", action="store_true")
    parser.add_argument("--most", type=int, default=0)
    parser.add_argument("--names", type=lambda text: set(text.split(",")), default=set())
    parser.add_argument("--trace", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # what a file system refuses is told once, and a fork near threads may be
    faulthandler.register(signal.SIGALRM, chain=True)
    options.folder.mkdir()
    scenario = SCENARIOS[options.scenario](options.folder, options.container, not options.not_durable)
    driver = Driver(scenario, Layer(options.folder))
    done = list(map(asdict, driver.trace())) if options.trace else driver.run(options.most, options.names)
    print(json.dumps(done))


if __name__ == "__main__":
    main()
