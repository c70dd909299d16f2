"""Every Python example of the documentation runs, page by page, in the order in which it is read."""

from __future__ import annotations

import logging
import os
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import jobcore
from jobcore.graph import registry

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def own_logging():
    """What a page sets up to be heard is taken back after it: the next test may count on silence."""
    root = logging.getLogger()
    loggers = [
        root,
        *(logging.getLogger(name) for name in ("jobcore", "jobcore.store", "jobcore.runtime", "jobcore.log")),
    ]
    before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


@pytest.mark.usefixtures("own_logging")
@pytest.mark.parametrize("page", [p for p in PAGES if BLOCK.search(p.read_text())], ids=name)
def test_examples_run(page, tmp_path, monkeypatch):
    # Programs that a page starts must find the package that is tested, also by a path relative to here.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(Path(path).resolve()) for path in sys.path if path))
    # Op types that a page registers must not meet other tests.
    monkeypatch.setattr(registry, "_schemas", dict(registry._schemas))
    monkeypatch.chdir(tmp_path)
    if page.name == "format.md":
        for place in ("model.zarr.zip", "model.zarr"):
            jobcore.save(place, {"fc1/weight:0": np.eye(3), "empty": np.empty((0, 2))})
    text = page.read_text()
    module = types.ModuleType("documentation_example")
    # Dataclasses and pickling look their module up by name.
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in BLOCK.finditer(text):
        # Blank lines in front make a traceback give the line of the page.
        code = "\n" * text[: block.start(1)].count("\n") + block[1]
        exec(compile(code, str(page), "exec"), module.__dict__)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_to_files_lead_somewhere(page):
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert missing == []


def test_the_readme_has_the_two_commands_each_in_one_line():
    text = (ROOT / "README.md").read_text()
    for marker in ("main-command", "test-command"):
        block = re.search(rf"<!-- {marker} -->\n```sh\n(.*?)\n```", text, re.DOTALL)
        assert block is not None
        assert "\n" not in block[1]
