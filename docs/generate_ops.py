"""Write docs/reference/ops.md from the registry of op types.

python docs/generate_ops.py            # writes the page
python docs/generate_ops.py --check    # exits with 1 when the page is out of date
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from jobcore.graph import REQUIRED, ArgSpec, OpSchema, all_ops, schema

PAGE = Path(__file__).parent / "reference" / "ops.md"

HEAD = """\
# Op types

The op types of this version, made from the registry by `docs/generate_ops.py`. How to call them is in
[nets, steps and names](graph.md#ops); `help(ops.Add)` shows the same. Of each argument: its name, the default if
there is one, what it may be, and what it is for. *In place* tells whether an output may be one of the inputs, *native*
whether there is a kernel in native code, which is tried first and runs without the interpreter: on 0-d tensors of bool,
int64 and float64, and, for arithmetic, comparisons, logic, `Copy`, `IsEmpty`, fills and queues, on tensors of at most
16 KiB in C order, which for arithmetic and the like are of one dtype (bool, integers, float32 or float64) and of one
shape, or one of them 0-d. All else is done by NumPy.

Branches and loops, `ops.If`, `ops.IfNet`, `ops.loop`, `ops.WhileNet` and so on, are [blocks](graph.md#blocks) and no
ops.

| op | inputs | outputs | arguments | in place | native | what it does |
|---|---|---|---|---|---|---|
"""


def main() -> int:
    """Write or check the page, and return the exit status."""
    text = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    print(f"{PAGE} is out of date: run python docs/generate_ops.py", file=sys.stderr)
    return 1


def page() -> str:
    """Return the text of the page."""
    return HEAD + "".join(map(row, map(schema, all_ops())))


def row(op: OpSchema) -> str:
    """Return the table row of one op type."""
    arguments = "; ".join(argument(name, spec) for name, spec in op.args.items())
    cells = [
        f"`{op.type}`",
        count(op.num_inputs),
        count(op.num_outputs),
        arguments,
        "yes" if op.inplace else "",
        "yes" if op.native is not None else "",
        " ".join(op.doc.replace("``", "`").split()),
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def count(bounds: tuple[int, int | None]) -> str:
    """Return smallest and largest count as text."""
    least, most = bounds
    if most is None:
        return f"{least} or more" if least else "any"
    return str(least) if least == most else f"{least} to {most}"


def argument(name: str, spec: ArgSpec) -> str:
    """Return one argument as text."""
    default = spec.default.item() if isinstance(spec.default, np.generic) else spec.default
    shown = f"`{name}`" if default is REQUIRED else f"`{name}={default!r}`"
    doc = spec.doc.rstrip(".").replace("``", "`")
    return f"{shown} ({spec.expected})" + (f": {doc}" if doc else "")


if __name__ == "__main__":
    sys.exit(main())
