"""Which stored blobs a load takes, and the name that each gets: a pure function of names.

Three steps, in this order: `names` picks among the stored names, `prefix` is cut off, `rename` gives the
wanted name. Everything that is wrong is gathered, so that one error can tell it all.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from jobcore.store.names import check_name

__all__ = ["Names", "Rename", "Selection", "closest", "select"]

#: What a caller may name a part of a database by.
Names = Iterable[str] | Callable[[str], object] | None

#: What may say how names change; ``None`` drops a blob.
Rename = Mapping[str, str | None] | Callable[[str], str | None] | None

_COMPARED = 10
_COMPARABLE = 20_000


@dataclass(slots=True)
class Selection:
    """The blobs that a load takes.

    Attributes
    ----------
    chosen
        Stored name and wanted name of each, in the order in which they were asked for.
    missing
        Names that were asked for and are not stored.
    problems
        What can be no load at all, as text.
    """

    chosen: list[tuple[str, str]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def select(stored: Mapping[str, int], names: Names, prefix: str | None, rename: Rename) -> Selection:
    """Choose blobs by their names.

    Parameters
    ----------
    stored
        The stored names, in the order of the database.
    names, prefix, rename
        As for :meth:`jobcore.store.Database.load`.

    Returns
    -------
    Selection
        What to load, and what is wrong.

    Raises
    ------
    TypeError
        An argument, or what a callable gave, is of a wrong type.
    """
    if prefix is not None and not isinstance(prefix, str):
        raise TypeError(f"expected prefix as text, found {type(prefix).__qualname__}")
    found = Selection()
    wanted = _wanted(stored, names, found)
    pairs = _below(stored, wanted, prefix, names, found) if prefix else [(name, name) for name in wanted]
    if rename is not None:
        pairs = list(_renamed(pairs, rename))
        if isinstance(rename, Mapping):
            found.problems += _not_stored(stored, rename, prefix or "")
    found.chosen = _apart(pairs, found.problems) if rename is not None else pairs
    return found


def _wanted(stored: Mapping[str, int], names: Names, found: Selection) -> list[str]:
    if names is None:
        return list(stored)
    if isinstance(names, str):
        raise TypeError(f"expected names as an iterable of texts, found the single text {names!r:.80}")
    if isinstance(names, Iterable):
        wanted = list(dict.fromkeys(names))
        found.missing = [name for name in wanted if name not in stored]
        return [name for name in wanted if name in stored]
    if callable(names):
        return [name for name in stored if names(name)]
    raise TypeError(f"expected names as an iterable of texts or a callable, found {type(names).__qualname__}")


def _below(
    stored: Mapping[str, int], wanted: list[str], prefix: str, names: Names, found: Selection
) -> list[tuple[str, str]]:
    if not any(name.startswith(prefix) for name in stored):
        found.problems.append(f"the prefix {prefix!r:.120}: no stored name begins with it")
        return []
    pairs = []
    listed = isinstance(names, Iterable)
    for name in wanted:
        if name == prefix:
            found.problems.append(f"{name!r:.120}: nothing is left of it without the prefix")
        elif name.startswith(prefix):
            pairs.append((name, name[len(prefix) :]))
        elif listed:
            found.problems.append(
                f"{name!r:.120}: asked for, but it does not begin with the prefix {prefix!r:.120}"
            )
    return pairs


def _renamed(pairs: list[tuple[str, str]], rename: Rename) -> Iterator[tuple[str, str]]:
    if not isinstance(rename, Mapping) and not callable(rename):
        raise TypeError(f"expected rename as a mapping or a callable, found {type(rename).__qualname__}")
    for name, short in pairs:
        wanted = rename.get(short, short) if isinstance(rename, Mapping) else rename(short)
        if wanted is None:
            continue
        if not isinstance(wanted, str):
            raise TypeError(
                f"expected the new name of {short!r:.120} as text or None, found {type(wanted).__qualname__}"
            )
        yield name, wanted


def _not_stored(stored: Mapping[str, int], rename: Mapping[str, str | None], prefix: str) -> Iterator[str]:
    below = [name[len(prefix) :] for name in stored if name.startswith(prefix)]
    there = set(below)
    compare = 0
    for name in rename:
        if name not in there:
            compare += 1
            where = f" below the prefix {prefix!r:.120}" if prefix else ""
            yield (
                f"{name!r:.120}: to be renamed, but no such blob is stored{where}"
                f"{closest(name, below) if compare <= _COMPARED else ''}"
            )


def _apart(pairs: list[tuple[str, str]], problems: list[str]) -> list[tuple[str, str]]:
    taken: dict[str, str] = {}
    for name, wanted in pairs:
        reason = check_name(wanted)
        other = taken.setdefault(wanted, name)
        if reason is not None:
            problems.append(f"{name!r:.120}: {reason}, after renaming")
        elif other != name:
            problems.append(f"{other!r:.120} and {name!r:.120} would both become {wanted!r:.120}")
    return pairs


def closest(name: object, known: Iterable[str]) -> str:
    """Tell which names are like one that does not exist.

    Parameters
    ----------
    name
        The name.
    known
        The names that exist.

    Returns
    -------
    str
        Text to follow a message, or nothing.
    """
    names = list(known)
    # The comparison takes microseconds for each name, so a million of them would look like a hang.
    close = difflib.get_close_matches(str(name), names, n=3) if len(names) <= _COMPARABLE else []
    return f" (there is {', '.join(close)})" if close else ""
