"""Random generators as a name of their algorithm and a state, so that a resumed run draws the same numbers.

Known are NumPy's ``Generator`` and ``RandomState`` over each bit generator that NumPy ships, and
``random.Random``. Where a NumPy generator was seeded by a ``SeedSequence``, that is kept too, so that
``spawn`` continues where it was.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np

from jobcore._state import copy_state
from jobcore.errors import BlobKindError, FormatError, MismatchError

__all__ = ["RNG", "rng_algorithm", "rng_restore", "rng_state"]

#: Any random generator that can be a blob.
RNG = np.random.Generator | np.random.RandomState | random.Random

_BIT_GENERATORS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        np.random.MT19937,
        np.random.PCG64,
        np.random.PCG64DXSM,
        np.random.Philox,
        np.random.SFC64,
    )
}
_GENERATOR = "numpy.Generator/"
_RANDOM_STATE = "numpy.RandomState/"
_PYTHON = "python.Random"
# NumPy mixes each word of the pool with each other one: a file must not make that take for ever.
_MAX_POOL = 1 << 12


def rng_algorithm(generator: object, where: str = "rng") -> str:
    """Name the algorithm of a generator.

    Parameters
    ----------
    generator
        A ``numpy.random.Generator``, ``numpy.random.RandomState`` or ``random.Random``.
    where
        What to call it in an error, usually the name of the blob.

    Returns
    -------
    str
        ``"numpy.Generator/PCG64"``, ``"numpy.RandomState/MT19937"``, ``"python.Random"``, and so on.

    Raises
    ------
    BlobKindError
        Another object, or a subclass, whose further state nobody here knows.
    """
    if type(generator) is random.Random:
        return _PYTHON
    if type(generator) in (np.random.Generator, np.random.RandomState):
        bits = _bit_generator(generator)
        if _BIT_GENERATORS.get(type(bits).__name__) is type(bits):
            stem = _GENERATOR if type(generator) is np.random.Generator else _RANDOM_STATE
            return stem + type(bits).__name__
        found = f"{type(generator).__name__} over {type(bits).__name__}"
    else:
        found = f"{type(generator).__module__}.{type(generator).__qualname__}"
    raise BlobKindError(
        f"{where}: expected numpy.random.Generator or RandomState over {', '.join(_BIT_GENERATORS)}, "
        f"or random.Random, found {found}"
    )


def rng_state(generator: RNG, where: str = "rng") -> tuple[str, Any]:
    """Take the state of a generator, which stays as it is.

    Parameters
    ----------
    generator
        As for :func:`rng_algorithm`.
    where
        What to call it in an error.

    Returns
    -------
    tuple of str and object
        The name of the algorithm, and a state that :func:`jobcore._state.encode_state` takes.

    Raises
    ------
    BlobKindError
        As for :func:`rng_algorithm`.
    """
    algorithm = rng_algorithm(generator, where)
    if isinstance(generator, random.Random):
        return algorithm, {"state": generator.getstate()}
    bits = _bit_generator(generator)
    # NumPy holds this lock while it draws; without it a state could be taken in the middle of a draw.
    with bits.lock:
        if isinstance(generator, np.random.RandomState):
            return algorithm, copy_state(generator.get_state(legacy=False), where)
        return algorithm, {
            "state": copy_state(bits.state, where),
            "seed_seq": _seed_sequence(bits.seed_seq, where),
        }


def rng_restore(generator: RNG | None, algorithm: str, state: Any) -> RNG:
    """Put a state into a generator, or make a new one with it.

    Parameters
    ----------
    generator
        The generator to continue, of the same algorithm, or ``None`` for a new one. A NumPy generator keeps
        its own seed sequence; when that is the one stored, its count of spawned children is brought up to
        the stored one.
    algorithm, state
        What :func:`rng_state` gave; they may come from a damaged or hostile file.

    Returns
    -------
    numpy.random.Generator, numpy.random.RandomState or random.Random
        `generator` itself where it was given.

    Raises
    ------
    FormatError
        The algorithm is not known, or the state is not one of it; `generator` is untouched.
    MismatchError
        `generator` is of another algorithm.
    """
    try:
        fresh = _make(algorithm, state)
    except FormatError:
        raise
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError) as error:
        raise FormatError(f"expected a state of {algorithm}, found one that it refuses: {error}") from error
    # Numbers that are too large for it are cut without a word.
    kept = rng_state(fresh)[1]
    if state.get("seed_seq") is None:
        kept.pop("seed_seq", None)
    if not _within(kept, state):
        raise FormatError(f"expected a state of {algorithm}, found one that it takes for another")
    if generator is None:
        return fresh
    if rng_algorithm(generator) != algorithm:
        raise MismatchError(f"expected a generator of {algorithm}, found one of {rng_algorithm(generator)}")
    if isinstance(generator, random.Random):
        generator.setstate(fresh.getstate())  # type: ignore[union-attr]  # the algorithms are equal
        return generator
    bits = _bit_generator(generator)
    with bits.lock:
        if isinstance(generator, np.random.RandomState):
            generator.set_state(fresh.get_state(legacy=False))  # type: ignore[union-attr]  # as above
        else:
            bits.state = _bit_generator(fresh).state
            _advance(bits.seed_seq, _bit_generator(fresh).seed_seq)
    return generator


def _bit_generator(generator: Any) -> Any:
    # RandomState keeps its bit generator under a private name only; get_state knows its type, not its lock.
    return generator._bit_generator


def _seed_sequence(sequence: object, where: str) -> dict[str, Any] | None:
    if type(sequence) is not np.random.SeedSequence or sequence.pool_size > _MAX_POOL:
        return None  # a user's own seed sequence cannot be rebuilt; drawing needs none
    return {
        "entropy": copy_state(sequence.entropy, where),
        "spawn_key": [int(n) for n in sequence.spawn_key],
        "pool_size": sequence.pool_size,
        "n_children_spawned": sequence.n_children_spawned,
    }


def _advance(live: object, stored: object) -> None:
    if type(live) is not np.random.SeedSequence or type(stored) is not np.random.SeedSequence:
        return
    same = {k: v for k, v in live.state.items() if k != "n_children_spawned"} == {
        k: v for k, v in stored.state.items() if k != "n_children_spawned"
    }
    # A few at a time: there is no other way to count them, and they need not all be there at once.
    while same and live.n_children_spawned < stored.n_children_spawned:
        live.spawn(min(1 << 12, stored.n_children_spawned - live.n_children_spawned))


def _make(algorithm: str, state: Any) -> RNG:
    if not isinstance(state, dict):
        raise FormatError(f"expected a state of {algorithm}, found {type(state).__name__}")
    if algorithm == _PYTHON:
        python = random.Random()
        _check_python(state["state"])
        python.setstate(state["state"])
        return python
    stem, _, name = algorithm.partition("/")
    kind = _BIT_GENERATORS.get(name)
    if kind is None or stem + "/" not in (_GENERATOR, _RANDOM_STATE):
        raise FormatError(
            f"expected the state of a random generator, one of {_PYTHON}, {_GENERATOR}<name>, "
            f"{_RANDOM_STATE}<name> with <name> of {', '.join(_BIT_GENERATORS)}; found {algorithm!r:.80}"
        )
    if stem + "/" == _RANDOM_STATE:
        _check_positions(state)
        legacy = np.random.RandomState(kind(0))
        legacy.set_state(state)
        return legacy
    _check_positions(state["state"])
    seed = state["seed_seq"]
    if seed is not None and not seed["pool_size"] <= _MAX_POOL:
        raise ValueError(f"a pool of {seed['pool_size']!r} words is larger than {_MAX_POOL}")
    bits = kind(0 if seed is None else np.random.SeedSequence(**seed))
    bits.state = state["state"]
    return np.random.Generator(bits)


def _within(kept: Any, stored: Any) -> bool:
    """Tell whether a state has nothing but what is in the stored one, which may have more members."""
    if isinstance(kept, dict):
        return isinstance(stored, dict) and all(
            key in stored and _within(value, stored[key]) for key, value in kept.items()
        )
    if isinstance(kept, list | tuple) and isinstance(stored, list | tuple):
        return len(kept) == len(stored) and all(map(_within, kept, stored))
    return np.array_equal(kept, stored)


def _check_python(state: Any) -> None:
    # The standard library keeps any object as the number that waits, and takes False for the word 0.
    _, words, waiting = state
    if {*map(type, words)} != {int} or type(waiting) not in (type(None), float, int):
        raise ValueError("it has members that are no numbers")


def _check_positions(state: Mapping[str, Any]) -> None:
    # NumPy takes these two indices into its own buffers without a look, and would read past their end.
    for found, end in ((state["state"].get("pos", 0), 624), (state.get("buffer_pos", 0), 4)):
        if type(found) is not int or not 0 <= found <= end:
            raise ValueError(f"position {found!r} is not in 0..{end}")
