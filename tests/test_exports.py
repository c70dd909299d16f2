"""Each public name is public in one place, explained where it stands, and in the reference.

Users import from the places below and from nowhere else. Every other module belongs to the implementation:
its ``__all__`` says what the rest of the package may take from it.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

import jobcore

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"

# The public places. A name that a user may want goes into exactly one of them.
PLACES = {
    "jobcore": "what a training job, and whoever only wants files, needs",
    "jobcore.data": "records, and how they move: readers, writers, data sets",
    "jobcore.errors": "what can go wrong",
    "jobcore.lowlevel": "the parts, for authors of other libraries",
    "jobcore.testing": "what their tests may use",
}

# Modules of the implementation that gather what others define, so that the rest of the package finds it together.
GATHERED = {
    "jobcore.data.schema": {"jobcore.data.fields"},
    "jobcore.graph.net": {"jobcore.graph.op"},
    "jobcore.tasks": {"jobcore.groups", "jobcore.nodes", "jobcore.outputs"},
}

Modules = Mapping[str, Any]


@cache
def modules() -> dict[str, ModuleType]:
    """Return all modules of the package that have no underscore in their path."""
    names = [info.name for info in pkgutil.walk_packages(jobcore.__path__, "jobcore.", onerror=_raise)]
    public = ["jobcore", *(name for name in names if "._" not in name)]
    return {name: importlib.import_module(name) for name in public}


def _raise(name: str) -> None:
    raise ImportError(f"{name} cannot be imported")


def bad_lists(modules: Modules) -> Iterator[str]:
    """A module states what it offers; names in the list exist, once, and none hides a submodule."""
    for name, module in modules.items():
        listed = getattr(module, "__all__", None)
        if listed is None:
            yield f"{name} has no __all__"
            continue
        yield from (f"{name}.__all__ names {n}, which is not there" for n in listed if not hasattr(module, n))
        yield from (f"{name}.__all__ names {n} twice" for n in set(listed) if list(listed).count(n) > 1)
        for n in listed:
            if f"{name}.{n}" in modules and getattr(module, n, None) is not modules[f"{name}.{n}"]:
                yield f"{name}.{n} is a module and something else: which one depends on the order of imports"


def names_in_two_places(modules: Modules, places: Iterable[str]) -> Iterator[str]:
    """A name is public once, and nothing else that a module offers has the same name."""
    home: dict[str, str] = {}
    for place in places:
        for name in modules[place].__all__:
            if name in home:
                yield f"{name} is public in {home[name]} and in {place}: choose one"
            home.setdefault(name, place)
    for other, module in modules.items():
        for name in set(module.__all__) & home.keys():
            if getattr(module, name) is not getattr(modules[home[name]], name):
                yield f"{other}.{name} is not {home[name]}.{name}: one name, two meanings"


def stray_exports(modules: Modules, places: Iterable[str]) -> Iterator[str]:
    """Inside the package a thing is offered by its own module, by the packages round that, and as GATHERED says.

    What is defined in a private module may be offered by one other module.
    """
    places = set(places)
    offered: dict[int, tuple[Any, str, list[str]]] = {}
    for module_name, module in modules.items():
        for name in module.__all__:
            thing = getattr(module, name)
            home = getattr(thing, "__module__", None)
            if not isinstance(thing, type | FunctionType) or not isinstance(home, str):
                continue
            if not home.startswith("jobcore"):
                yield f"{module_name}.{name} comes from {home}: not ours to offer"
            elif (
                module_name not in places
                and not home.startswith(module_name + ".")
                and home not in GATHERED.get(module_name, ())
            ):
                offered.setdefault(id(thing), (thing, home, []))[2].append(module_name)
    for thing, home, exporters in offered.values():
        if "._" not in home and exporters != [home] and exporters:
            yield f"{thing.__name__} of {home} is also offered by {', '.join(set(exporters) - {home})}"
        elif len(exporters) > 1:
            yield f"{thing.__name__} of {home} is offered by {', '.join(exporters)}: choose one"


def without_docstring(modules: Modules, places: Iterable[str]) -> Iterator[str]:
    """Classes, functions, and the public methods and properties that a class of ours defines."""
    for place in places:
        for name in modules[place].__all__:
            thing = getattr(modules[place], name)
            if isinstance(thing, type):
                doc = thing.__dict__.get("__doc__") or ""
                # A dataclass without a docstring gets its signature as one.
                if not doc.strip() or doc.startswith(f"{thing.__name__}("):
                    yield f"{place}.{name}"
                yield from (f"{place}.{name}.{method}" for method in _silent_methods(thing))
            elif callable(thing) and not (inspect.getdoc(thing) or "").strip():
                yield f"{place}.{name}"


def _silent_methods(cls: type) -> Iterator[str]:
    ours = [base for base in cls.__mro__ if base.__module__.startswith("jobcore")]
    names = {name for base in ours for name in base.__dict__ if not name.startswith("_")}
    for name in sorted(names):
        found = [base.__dict__[name] for base in cls.__mro__ if name in base.__dict__]
        if _explains(found[0]) and not any((getattr(f, "__doc__", None) or "").strip() for f in found):
            yield name


def _explains(thing: object) -> bool:
    """Tell whether a class attribute is of a kind that carries a docstring; constants and slots do not."""
    if isinstance(thing, classmethod | staticmethod | property | cached_property):
        return True
    return callable(thing) or type(thing).__name__ == "getset_descriptor"


def undocumented(modules: Modules, places: Iterable[str], pages: Iterable[str]) -> Iterator[str]:
    """Names that no page shows in code or in a heading, bare or with their place before them."""
    shown: set[str] = set()
    for page in pages:
        shown.update(_paths_in_code(page))
    for place in places:
        for name in modules[place].__all__:
            qualified = (name, f"{place}.{name}", f"{place.rpartition('.')[2]}.{name}")
            if not name.startswith("__") and not any(q in shown for q in qualified):
                yield f"{place}.{name}"


def _paths_in_code(page: str) -> Iterator[str]:
    """Yield every dotted path, and its beginnings, in the code and the headings of a Markdown page."""
    fences = re.findall(r"^(```+|~~~+)[^\n]*\n(.*?)^\1", page, re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^(```+|~~~+)[^\n]*\n.*?^\1", "", page, flags=re.MULTILINE | re.DOTALL)
    spans = re.findall(r"(`+)(.+?)\1", rest)
    headings = re.findall(r"^#+ .*$", rest, re.MULTILINE)
    for code in [*(text for _, text in fences), *(text for _, text in spans), *headings]:
        for path in re.findall(r"(?<![\w.])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", code):
            parts = path.split(".")
            yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def none(faults: Iterable[str]) -> None:
    found = sorted(faults)
    assert not found, "\n".join(["", *found])


def test_every_public_module_lists_what_it_offers() -> None:
    none(bad_lists(modules()))


def test_every_public_name_is_public_in_one_place() -> None:
    none(names_in_two_places(modules(), PLACES))


def test_nothing_is_offered_by_a_module_that_does_not_own_it() -> None:
    none(stray_exports(modules(), PLACES))


def test_every_public_name_has_a_docstring() -> None:
    none(without_docstring(modules(), PLACES))


def test_every_public_name_is_in_the_reference() -> None:
    pages = [path.read_text(encoding="utf-8") for path in sorted(REFERENCE.glob("*.md"))]
    none(undocumented(modules(), PLACES, pages))


def fake(name: str, **things: object) -> ModuleType:
    module = ModuleType(name)
    for key, thing in things.items():
        if isinstance(thing, type | FunctionType) and thing.__module__ == __name__:
            thing.__module__ = name
        setattr(module, key, thing)
    module.__all__ = list(things)  # type: ignore[attr-defined]  # modules take any attribute
    return module


def silent() -> type:
    class Silent:
        constant = 3

        def told(self) -> None:
            """Tells."""

        def untold(self) -> None: ...

        @property
        def state(self) -> int:
            return 1

        def _hidden(self) -> None: ...

    return Silent


def test_bad_lists_are_found() -> None:
    bare = ModuleType("jobcore.a")
    wrong = fake("jobcore.b", x=1, c=2)
    wrong.__all__ += ["x", "gone"]  # type: ignore[attr-defined]  # set by fake()
    found = list(bad_lists({"jobcore.a": bare, "jobcore.b": wrong, "jobcore.b.c": fake("jobcore.b.c")}))
    assert [text.split(":")[0] for text in found] == [
        "jobcore.a has no __all__",
        "jobcore.b.__all__ names gone, which is not there",
        "jobcore.b.__all__ names x twice",
        "jobcore.b.c is a module and something else",
    ]


def test_a_name_in_two_places_is_found() -> None:
    fakes = {
        "jobcore": fake("jobcore", A=1, B=2),
        "jobcore.low": fake("jobcore.low", A=1),
        "jobcore.x": fake("jobcore.x", B=3),
    }
    assert list(names_in_two_places(fakes, ["jobcore", "jobcore.low"])) == [
        "A is public in jobcore and in jobcore.low: choose one",
        "jobcore.x.B is not jobcore.B: one name, two meanings",
    ]


@pytest.mark.parametrize(
    ("home", "exporters", "fault"),
    [
        ("jobcore.a.b", ["jobcore", "jobcore.a", "jobcore.a.b"], None),
        ("jobcore._fast.b", ["jobcore", "jobcore.a"], None),
        ("jobcore.a.b", ["jobcore.a.b", "jobcore.c"], "Silent of jobcore.a.b is also offered by jobcore.c"),
        ("jobcore.a.b", ["jobcore.c"], "Silent of jobcore.a.b is also offered by jobcore.c"),
        (
            "jobcore._b",
            ["jobcore.a", "jobcore.c"],
            "Silent of jobcore._b is offered by jobcore.a, jobcore.c: choose one",
        ),
        ("os", ["jobcore"], "jobcore.thing comes from os: not ours to offer"),
    ],
)
def test_a_stray_export_is_found(home: str, exporters: list[str], fault: str | None) -> None:
    thing = silent()
    thing.__module__ = home
    fakes = {name: fake(name, thing=thing) for name in exporters}
    assert list(stray_exports(fakes, ["jobcore"])) == ([fault] if fault else [])


def test_a_missing_docstring_is_found() -> None:
    fakes = {"jobcore": fake("jobcore", thing=silent(), number=3)}
    found = list(without_docstring(fakes, ["jobcore"]))
    assert found == ["jobcore.thing", "jobcore.thing.state", "jobcore.thing.untold"]


@pytest.mark.parametrize(
    ("page", "missing"),
    [
        ("# Job\n", []),
        ("Use `Job(1)` here.", []),
        ("Use `jobcore.Job.run`.", []),
        ("```python\nwith jobcore.Job() as job: ...\n```\n", []),
        ("A Job in prose.", ["jobcore.Job"]),
        ("`JobRunner`, `x.Job`, `Job_2` and `my_Job`.", ["jobcore.Job"]),
    ],
)
def test_an_undocumented_name_is_found(page: str, missing: list[str]) -> None:
    fakes = {"jobcore": fake("jobcore", Job=silent(), __version__="1")}
    assert list(undocumented(fakes, ["jobcore"], [page])) == missing
