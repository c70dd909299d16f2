"""Build of the native core.

Two switches, read from the environment at build time:

``JOBCORE_DEBUG=1``
    bounds, wrap-around, overflow and initialisation checks on, no optimisation, assertions on.
``JOBCORE_SANITIZE=address,undefined``
    passed to the compiler's ``-fsanitize=``; run Python with the matching runtime preloaded.

Each combination builds in a directory of its own. Only ``build_ext --inplace`` writes to one place for all of
them: add ``--force`` to it after a change of switches.
"""

import os
import sys
from pathlib import Path

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = os.environ.get("JOBCORE_DEBUG", "") not in ("", "0")
SANITIZE = os.environ.get("JOBCORE_SANITIZE", "")

# The one place for compiler directives: no .pyx file carries its own.
DIRECTIVES = {
    "language_level": "3",
    "binding": True,
    "embedsignature": False,
    "auto_pickle": False,
    "autotestdict": False,
    "boundscheck": DEBUG,
    "wraparound": DEBUG,
    "overflowcheck": DEBUG,
    "initializedcheck": DEBUG,
    "nonecheck": DEBUG,
    "cdivision": not DEBUG,
    "legacy_implicit_noexcept": False,
    "freethreading_compatible": False,
}

compile_args = ["-std=c11", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-unused-function"]
# What a sanitizer adds to optimised code takes its compiler many minutes, and hides some of what it looks for. Whoever
# says in CFLAGS how to optimise is obeyed.
if DEBUG:
    compile_args += ["-O0", "-g3", "-UNDEBUG"]
elif "-O" not in os.environ.get("CFLAGS", ""):
    compile_args += ["-O1" if SANITIZE else "-O3"]
link_args = []
# The base of a jump table would take a register in the loop over the ops of a program, which has none to spare: what is
# kept in memory instead has to be written before each atomic op, which waits for that.
UNIT_ARGS = {"run": ["-fno-jump-tables"]}
if SANITIZE:
    compile_args += [f"-fsanitize={SANITIZE}", "-fno-omit-frame-pointer", "-g"]
    link_args += [f"-fsanitize={SANITIZE}"]

# A shared directory would let a plain build pick up the objects of a debug build: they look up to date.
variant = "-".join(["debug" if DEBUG else "release", *SANITIZE.replace(",", " ").split()])

fast = Path("src/jobcore/_fast")
extensions = [
    Extension(
        f"jobcore._fast.{source.stem}",
        [source.as_posix()],
        include_dirs=[numpy.get_include(), fast.as_posix()],
        define_macros=[
            ("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION"),
            ("NPY_TARGET_VERSION", "NPY_1_22_API_VERSION"),  # memory handlers of arrays
        ],
        extra_compile_args=[*compile_args, *UNIT_ARGS.get(source.stem, [])],
        extra_link_args=link_args,
        depends=sorted(header.as_posix() for header in fast.glob("*.h")),
    )
    for source in sorted(fast.glob("*.pyx"))
]

# One process for each core: there are more units than cores. Where processes are not forked, Cython stays serial, as a
# new one would run this file again.
cores = os.cpu_count() or 1
workers = cores if sys.platform == "linux" and cores > 1 else 0

setup(
    ext_modules=cythonize(
        extensions,
        nthreads=workers,
        include_path=["src"],
        build_dir=f"build/{variant}/cython",
        compiler_directives=DIRECTIVES,
    ),
    options={"build": {"build_base": f"build/{variant}"}, "build_ext": {"parallel": cores}},
)
