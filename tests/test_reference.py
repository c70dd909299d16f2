"""The reference pages say what the code says: signatures, and the table of ops. Links lead to headings."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted((DOCS / "reference").glob("*.md"))
PLACES = (
    "jobcore",
    "jobcore.data",
    "jobcore.store",
    "jobcore.checkpoint",
    "jobcore.graph",
    "jobcore.runtime",
    "jobcore.lowlevel",
    "jobcore.testing",
)
HEADING = re.compile(r"^##+ `(?:jobcore\.\w+\.)?(\w+)`$")
SPAN = re.compile(r"`([^`]+)`")
CALL = re.compile(r"(?:\w+\.)?\w+\(.*\)", re.DOTALL)
UNKNOWN = object()


def find(name: str) -> Any:
    """Return the public thing of that name, or None."""
    modules = map(importlib.import_module, PLACES)
    return next((getattr(module, name) for module in modules if hasattr(module, name)), None)


def signatures(text: str) -> Iterator[tuple[str | None, str]]:
    """Yield (name of the class whose section it is in, documented signature).

    They stand alone on a line below a heading, or in the first cell of a table row.
    """
    section: str | None = None
    below_heading = False
    for line in re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL).splitlines():
        if line.startswith("#"):
            heading = HEADING.match(line)
            section = heading[1] if heading else None
            below_heading = True
        elif line.startswith("| `"):
            cell = re.split(r"(?<!\\)\|", line)[1]
            yield from ((section, span) for span in SPAN.findall(cell) if CALL.fullmatch(span))
        elif below_heading and line.strip():
            below_heading = False
            if line.startswith("`") and CALL.fullmatch(line.strip("`")):
                yield None, line.strip("`")


def documented(signature: str) -> tuple[str, list[tuple[str, str, object]]]:
    """Return the name, and (parameter, kind, default) of each parameter, of a signature as text."""
    head, _, parameters = signature.partition("(")
    parsed = ast.parse(f"def f({parameters}: ...").body[0]
    assert isinstance(parsed, ast.FunctionDef)
    a = parsed.args
    plain = a.posonlyargs + a.args
    defaults = [None] * (len(plain) - len(a.defaults)) + list(a.defaults)
    found = [(p.arg, "plain", value(d)) for p, d in zip(plain, defaults, strict=True)]
    found += [("*", "rest", inspect.Parameter.empty)] * (a.vararg is not None)
    found += [(p.arg, "keyword", value(d)) for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True)]
    found += [("**", "rest", inspect.Parameter.empty)] * (a.kwarg is not None)
    return head, found


def value(default: ast.expr | None) -> object:
    if default is None:
        return inspect.Parameter.empty
    try:
        return ast.literal_eval(default)
    except ValueError:
        return UNKNOWN


def actual(thing: Any, method: bool) -> list[tuple[str, str, object]]:
    """Return the same of the thing itself."""
    found = []
    for name, parameter in inspect.signature(thing).parameters.items():
        if method and not found and name == "self":
            method = False
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            found.append(("*", "rest", parameter.empty))
        elif parameter.kind is parameter.VAR_KEYWORD:
            found.append(("**", "rest", parameter.empty))
        else:
            kind = "keyword" if parameter.kind is parameter.KEYWORD_ONLY else "plain"
            found.append((name, kind, parameter.default))
    return found


def difference(section: str | None, signature: str) -> str | None:
    """Say what is wrong with a documented signature; None when all is well."""
    head, expected = documented(signature)
    owner, _, name = head.rpartition(".")
    holder = find(owner or section) if owner or section else None
    thing = getattr(holder, name, None) if holder is not None and hasattr(holder, name) else find(head)
    if thing is None:
        return f"{head} is nowhere"
    try:
        found = actual(thing, method=holder is not None)
    except ValueError:
        # The constructor of a native class does not tell.
        return None
    agree = len(expected) == len(found) and all(
        e[:2] == f[:2] and (e[2] is UNKNOWN or e[2] == f[2] or (e[2] is f[2]))
        for e, f in zip(expected, found, strict=True)
    )
    return None if agree else f"{signature} should be {head}{inspect.signature(thing)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_documented_signatures_are_those_of_the_code(page: Path) -> None:
    faults = [difference(*found) for found in signatures(page.read_text(encoding="utf-8"))]
    assert [fault for fault in faults if fault] == []


def test_wrong_signatures_are_found() -> None:
    page = (
        "## `Node`\n\n`Node(name='local', **kwargs)`\n\n| a | b |\n|---|---|\n| `gone()`, `kwargs(x)` | |\n"
    )
    found = [difference(*one) for one in signatures(page)]
    assert [str(fault).split(" should")[0] for fault in found] == [
        "Node(name='local', **kwargs)",
        "gone is nowhere",
        "kwargs(x)",
    ]


def test_the_table_of_ops_is_up_to_date() -> None:
    # In a process of its own: other tests register op types.
    done = subprocess.run(
        [sys.executable, str(DOCS / "generate_ops.py"), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def headings(page: Path) -> set[str]:
    """Return what a link to each heading of a page looks like."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found = (re.sub(r"[^\w -]", "", title.lower()) for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE))
    return {title.strip().replace(" ", "-") for title in found}


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.name)
def test_links_to_headings_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text(encoding="utf-8"))
    assert [
        link for link in links if link[1] not in headings(page.parent / link[0] if link[0] else page)
    ] == []
