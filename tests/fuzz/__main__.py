"""Run cases for some time: ``PYTHONPATH=src:tests python -m fuzz --seconds 600``.

The seed is printed. What a case left behind when it broke a promise is kept in a folder, with the reason beside it, and
``--seed S --only NUMBER`` makes it again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from fuzz.cases import run


def main() -> int:
    """Run, and give the exit code."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", type=int, help="the one case of this number")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-findings"), help="folder for what was found")
    options = parser.parse_args()
    sys.stdout.write(f"seed {options.seed}\n")
    sys.stdout.flush()
    numbers = range(options.first, sys.maxsize) if options.only is None else [options.only]
    with tempfile.TemporaryDirectory() as folder:
        report = run(options.seed, numbers, Path(folder), seconds=options.seconds, keep=options.keep)
    sys.stdout.write(f"{report}\n")
    return 1 if report.findings else 0


sys.exit(main())
