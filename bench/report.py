"""Print the tables of bounds from the files of pytest-benchmark: ``python bench/report.py [--readme] FILE.json...``.

With ``--readme`` they go into ``bench/README.md``, in place of those that are there. A table of which no file has a
row stays as it is.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from engine import engine_table
from rounds import ROWS, Row

Found = dict[str, Any]

#: Each table of ``README.md`` is what follows its line, up to the next.
MARKS = ("## The table\n", "## The engine\n")


def number(value: float, unit: str) -> str:
    if unit == "%":
        return f"{value * 100:.1f} %"
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{digits}f} {unit}"


def spread(values: list[float], unit: str) -> str:
    low, high = (number(value, unit).removesuffix(f" {unit}") for value in (min(values), max(values)))
    return f"{number(statistics.median(values), unit)} ({low} to {high})"


def line(row: Row, found: Found, first: bool) -> str:
    median = statistics.median(found["values"])
    met = ("met" if median <= row.bound else "**not met**") if found["bounded"] else "not bounded"
    limit = f"{statistics.median(found['limit_s']):.3g} s" if found.get("limit_s") else ""
    start = f"{row.what} | {row.bound_text}" if first else " | "
    return f"| {start} | {found['case']} | {spread(found['values'], row.unit)} | {limit} | {met} |"


def bounds(found: list[Found]) -> list[str]:
    lines = ["| what | bound | case | median (min to max) | limit | |", "|---|---|---|---|---|---|"]
    for key, row in ROWS.items():
        cases = [one for one in found if one["row"] == key]
        if key.startswith("peer-"):
            cases = fastest(cases)
        lines += [line(row, one, number == 0) for number, one in enumerate(cases)]
    return lines


def fastest(cases: list[Found]) -> list[Found]:
    """Of each state the peer that comes closest."""
    closest: dict[str, Found] = {}
    for one in cases:
        state = one["case"].split(",")[0]
        if state not in closest or statistics.median(one["values"]) > statistics.median(
            closest[state]["values"]
        ):
            closest[state] = one
    return list(closest.values())


def peers(found: list[Found]) -> list[str]:
    """How many times as long as ours each peer takes, and its seconds."""
    table: dict[str, dict[str, str]] = {}
    for one in found:
        if not one["row"].startswith("peer-"):
            continue
        state, peer = one["case"].split(", ")
        times = 1 / statistics.median(one["values"])
        column = f"{state} {one['row'].removeprefix('peer-')}"
        table.setdefault(peer, {})[column] = (
            f"{number(times, 'x')}, {statistics.median(one['limit_s']):.3g} s"
        )
    columns = sorted({column for row in table.values() for column in row})
    if not columns:
        return []
    lines = ["", "| peer | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    return lines + [
        f"| {peer} | " + " | ".join(row.get(column, "") for column in columns) + " |"
        for peer, row in table.items()
    ]


def machine(document: Any) -> list[str]:
    about = document["machine_info"]
    ours = about.get("jobcore", {})
    cpu = about.get("cpu", {})
    versions = ", ".join(f"{name} {version}" for name, version in ours.get("versions", {}).items())
    return [
        f"Measured on {document['datetime'][:10]}: {cpu.get('brand_raw', about['machine'])}, {cpu.get('count')} cores, "
        f"{ours.get('memory_gib')} GiB of memory, {about['system']} {about['release']}, "
        f"Python {about['python_version']}; {versions}. Scale {ours.get('scale')}, {ours.get('rounds')} rounds.",
        "",
    ]


def main(arguments: list[str]) -> None:
    documents = [json.loads(Path(path).read_text()) for path in arguments if path != "--readme"]
    if not documents:
        raise SystemExit("expected files written by pytest --benchmark-json, found none")
    storage = [one for one in documents if rows(one)]
    found = [row for document in storage for row in rows(document)]
    tables = [
        [*machine(storage[-1]), *bounds(found), *peers(found)] if found else [],
        [*machine(documents[-1]), *engine] if (engine := engine_table(documents)) else [],
    ]
    if "--readme" not in arguments:
        print("\n\n".join("\n".join(table) for table in tables if table))
        return
    readme = Path(__file__).with_name("README.md")
    text = readme.read_text()
    for mark, table in zip(MARKS, tables, strict=True):
        if table:
            before, _, rest = text.partition(mark)
            after = rest[rest.find("\n## ") :] if "\n## " in rest else ""
            text = "\n".join([f"{before}{mark}", *table, after])
    readme.write_text(text)


def rows(document: Any) -> list[Found]:
    """The rows of the storage engine in one file."""
    return [row for one in document["benchmarks"] for row in one["extra_info"].get("rows", [])]


if __name__ == "__main__":
    main(sys.argv[1:])
