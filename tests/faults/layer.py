"""The fault-injecting file layer: system calls on files below one directory can be made to fail.

``faults.c`` is a small library that is preloaded into a program of its own, so that the interpreter's calls pass
through it as well as those of native threads. Inside that program `Layer` is its remote control::

    subprocess.run([sys.executable, "program.py"], env=preloaded())      # in the test
    layer = Layer(folder)                                                # in program.py
    layer.arm("pwrite", 3, Kind.FAIL, errno.ENOSPC)                      # the third write from now
"""

from __future__ import annotations

import atexit
import ctypes
import enum
import functools
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

#: Why tests that need the layer are for one platform: what they say in ``skipif``.
ONLY_LINUX = "a library is preloaded below the C library's calls, which other systems name and load otherwise"

_SOURCE = Path(__file__).with_name("faults.c")


class Kind(enum.IntEnum):
    """What may happen to a call; `value` is the argument of `Layer.arm`."""

    NONE = 0
    FAIL = 1  # with the errno `value`
    SHORT = 2  # `value` bytes are transferred, 0 for half of them
    END = 3  # a read finds the end of the file
    FLIP = 4  # one bit changes on the way
    SIGNAL = 5  # the signal `value` arrives just before
    KILL_BEFORE = 6
    KILL_AFTER = 7
    KILL_HALF = 8  # after half of the bytes
    LATE = 9  # it succeeds, and the errno `value` is told all the same


@dataclass(frozen=True, slots=True)
class Call:
    """One call: `begin` and `end` are moments on one clock; a field that it has not is -1 or empty."""

    begin: int
    end: int
    name: str
    path: str
    path2: str
    offset: int
    length: int
    flags: int
    result: int
    errno: int
    fault: str


class Layer:
    """Controls the preloaded library of this process.

    Parameters
    ----------
    root
        Calls on files below it are seen.
    """

    def __init__(self, root: Path) -> None:
        library = ctypes.CDLL(None)
        if not hasattr(library, "faults_root"):
            raise RuntimeError("expected faults.c to be preloaded, found LD_PRELOAD without it")
        library.faults_trace.restype = ctypes.c_void_p
        library.faults_arm.argtypes = [
            ctypes.c_char_p,
            ctypes.c_long,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_int,
        ]
        library.faults_disarm.restype = library.faults_count.restype = ctypes.c_long
        library.free.argtypes = [ctypes.c_void_p]
        self._library = library
        library.faults_root(os.fsencode(root))

    def arm(self, names: str, at: int, kind: Kind, value: int = 0, *, lasts: bool = False) -> None:
        """Give the `at`-th call from now of one of `names` (with commas; all when empty) a fault.

        With `lasts`, all later ones have it as well.
        """
        self._library.faults_arm(names.encode(), at, kind, value, lasts)

    def disarm(self) -> int:
        """Take the fault away, and return how often it happened."""
        return int(self._library.faults_disarm())

    def count(self) -> int:
        """Return the calls of the armed names since `arm`."""
        return int(self._library.faults_count())

    def trace(self) -> list[Call]:
        """Return the calls since the last time, in the order of their ends."""
        text = self._library.faults_trace()
        try:
            lines = os.fsdecode(ctypes.string_at(text)).splitlines()
        finally:
            self._library.free(text)
        calls = []
        for line in lines:
            begin, end, name, path, path2, offset, length, flags, result, code, fault = line.split("\t")
            numbers = map(int, (offset, length, flags, result, code))
            calls.append(Call(int(begin), int(end), name, path, path2, *numbers, fault))
        return calls


@functools.cache
def library() -> Path:
    """Compile the layer, once per process, and return the shared library."""
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = folder / "faults.so"
    command = ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-shared", "-fPIC"]
    done = subprocess.run(
        [*command, "-U_FORTIFY_SOURCE", "-o", str(target), str(_SOURCE), "-ldl", "-lpthread"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return target


def preloaded() -> dict[str, str]:
    """Return the environment of a program into which the layer is preloaded."""
    return {**os.environ, "LD_PRELOAD": str(library())}
