"""Finds what a source file imports, in Python and in Cython, without running it.

Imports count wherever they stand: at the top, inside functions, under ``if TYPE_CHECKING``, as ``cimport``,
or as a call of ``import_module`` with a literal name. Relative ones come out absolute.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PYTHON = {".py", ".pyi"}
CYTHON = {".pyx", ".pxd", ".pxi"}
DYNAMIC = ("import_module", "__import__")


@dataclass(frozen=True)
class Import:
    """One imported module; `names` are those of ``from module import names``."""

    line: int
    module: str
    names: tuple[str, ...] = ()


def source_files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.suffix in PYTHON | CYTHON)


def imports_of(path: Path, root: Path) -> list[Import]:
    """Return the imports of the file at `path`, a file of the package whose folder is `root`."""
    parts = [root.name, *path.relative_to(root).with_suffix("").parts]
    package = parts[:-1]  # for a/__init__.py and for a/b.py alike, "." is a
    return scan(path.read_text(encoding="utf-8"), ".".join(package), cython=path.suffix in CYTHON)


def scan(text: str, package: str, *, cython: bool) -> list[Import]:
    """Return the imports in `text`, the source of a module of `package`."""
    found = _cython(text) if cython else _python(text)
    return [Import(i.line, _absolute(i.module, package), i.names) for i in found]


def _absolute(module: str, package: str) -> str:
    name = module.lstrip(".")
    level = len(module) - len(name)
    if not level:
        return name
    parts = package.split(".")
    base = parts[: len(parts) - (level - 1)]
    return ".".join([*base, name] if name else base)


def _python(text: str) -> Iterator[Import]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield Import(node.lineno, module, tuple(alias.name for alias in node.names))
        elif isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            name = node.args[0]
            if called in DYNAMIC and isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield Import(node.lineno, name.value)


TOKEN = re.compile(
    r"""
    (?P<string> [rbufRBUF]{0,2} (?: \"{3} (?:\\.|[^\\])*? \"{3} | '{3} (?:\\.|[^\\])*? '{3}
                                  | "  (?:\\.|[^\\\n])*? "      | '   (?:\\.|[^\\\n])*? '     ) )
    | (?P<skip> \#[^\n]* | \\\r?\n | [^\S\n]+ )
    | (?P<word> [\w.]+ )
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)


def _cython(text: str) -> Iterator[Import]:
    for line, tokens in _statements(text):
        head, *rest = tokens
        if head in ("import", "cimport"):
            for part in _split(rest):
                yield Import(line, part[0])
        elif head == "from":
            verb = next((i for i, word in enumerate(rest) if word in ("import", "cimport")), None)
            if verb is not None:
                names = tuple(part[0] for part in _split(rest[verb + 1 :]))
                yield Import(line, "".join(rest[:verb]), names)
        for word, bracket, string in zip(tokens, tokens[1:], tokens[2:], strict=False):
            if word.split(".")[-1] in DYNAMIC and bracket == "(" and string[-1] in "\"'":
                yield Import(line, string.lstrip("rbufRBUF").strip("\"'"))


def _statements(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the simple statements as tokens, with their line: also those after a colon or a semicolon."""
    tokens: list[str] = []
    line = start = 1
    depth = 0
    for match in TOKEN.finditer(text):
        token = match.group()
        if match.lastgroup != "skip":
            depth += (token in "([{") - (token in ")]}")
            if depth <= 0 and token in (";", ":", "\n"):
                if tokens:
                    yield start, tokens
                tokens, depth = [], 0
            elif token != "\n":
                if not tokens:
                    start = line
                tokens.append(token)
        line += token.count("\n")
    if tokens:
        yield start, tokens


def _split(tokens: list[str]) -> Iterator[list[str]]:
    """Split at commas, without brackets; a trailing comma adds nothing."""
    part: list[str] = []
    for token in [*tokens, ","]:
        if token == ",":
            if part:
                yield part
            part = []
        elif token not in "()":
            part.append(token)
