"""Small Python state and random generators: copied, written as text, and back."""

from __future__ import annotations

import collections
import contextlib
import enum
import json
import math
import random
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobcore._rng import rng_algorithm, rng_restore, rng_state
from jobcore._state import copy_state, decode_state, encode_state
from jobcore.errors import BlobKindError, BlobValueError, FormatError, MismatchError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | TEXT
    | st.binary(max_size=9)
    | st.sampled_from([np.arange(6).reshape(2, 3), np.zeros((0, 2), ">f4"), np.float32(1.5), np.str_("é")])
)
STATES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(TEXT | st.sampled_from(["$", "$tuple", "$$"]), inner, max_size=4)
    ),
    max_leaves=20,
)


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, np.ndarray | np.generic):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, float):
        return struct.pack("d", one) == struct.pack("d", other)
    if isinstance(one, complex):
        return same(one.real, other.real) and same(one.imag, other.imag)
    return bool(one == other)


@given(STATES)
def test_states_come_back_equal_and_of_the_same_types(value: Any) -> None:
    data = encode_state(value)
    assert same(decode_state(data), value)
    assert encode_state(decode_state(data)) == data
    assert same(copy_state(value), value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"lr": 0.1, "betas": (0.9, 1)}, '{"lr":0.1,"betas":{"$tuple":[0.9,1]}}'),
        (2**53 - 1, "9007199254740991"),
        (-(2**53), '{"$int":"-0x20000000000000"}'),
        (float("-inf"), '{"$float":"fff0000000000000"}'),
        (b"\0\xff", '{"$bytes":"AP8="}'),
        (1 - 2j, '{"$complex":[1.0,-2.0]}'),
        ({"$tuple": [1]}, '{"$$tuple":[1]}'),
        (np.array([1, 2], ">i2"), '{"$array":{"dtype":">i2","shape":[2],"data":"AAEAAg=="}}'),
        (ml_dtypes.bfloat16(1), '{"$scalar":{"dtype":"bfloat16","shape":[],"data":"gD8="}}'),
        ("é\n", '"é\\n"'),
    ],
)
def test_the_text_is_the_documented_one(value: Any, text: str) -> None:
    assert encode_state(value).decode() == text
    json.loads(text)


def test_a_nan_keeps_its_payload() -> None:
    odd = struct.unpack(">d", bytes.fromhex("7ff8dead0000beef"))[0]
    assert struct.pack(">d", decode_state(encode_state([odd]))[0]).hex() == "7ff8dead0000beef"


def test_integers_of_any_size_come_back() -> None:
    assert decode_state(encode_state(-(7**9000))) == -(7**9000)


def test_a_copy_shares_nothing_that_can_change() -> None:
    value = {"a": [np.zeros(2)], "b": {"c": []}}
    copy = copy_state(value)
    value["a"][0][0] = 1
    value["b"]["c"].append(1)
    assert same(copy, {"a": [np.zeros(2)], "b": {"c": []}})


def test_subclasses_become_the_builtin_types() -> None:
    class Level(enum.IntEnum):
        HIGH = 3

    point = collections.namedtuple("point", "x y")
    value = collections.OrderedDict(a=Level.HIGH, b=point(1, 2), c=collections.defaultdict(list, d=[True]))
    assert same(copy_state(value), {"a": 3, "b": (1, 2), "c": {"d": [True]}})


def deep(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "error", "where"),
    [
        ({"opt": [0, {1}]}, BlobKindError, r"cfg\['opt'\]\[1\]"),
        ([0, object()], BlobKindError, r"cfg\[1\]"),
        ({"k": {1: 2}}, BlobKindError, r"cfg\['k'\].*keys of type str"),
        ((bytearray(2),), BlobKindError, r"cfg\[0\]"),
        ([np.array([None])], BlobKindError, r"cfg\[0\].*objects"),
        ([np.ma.masked_array([1], [True])], BlobKindError, r"cfg\[0\].*masked"),
        (["\udcff"], BlobValueError, r"cfg\[0\].*surrogate"),
        ({"\ud800": 1}, BlobValueError, "surrogate"),
        (deep(65), BlobValueError, "deeper than 64"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_its_path(
    value: Any, error: type[Exception], where: str
) -> None:
    with pytest.raises(error, match=where):
        copy_state(value, "cfg")


def test_a_list_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(BlobValueError, match="deeper"):
        encode_state(value)
    assert decode_state(encode_state(deep(64))) == deep(64)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff",
        b"{",
        b"NaN",
        b"[" * 100_000,
        b'{"$what":1}',
        b'{"$int":1}',
        b'{"$int":"zz"}',
        b'{"$float":"00"}',
        b'{"$float":0}',
        b'{"$complex":[1]}',
        b'{"$complex":["a",1]}',
        b'{"$bytes":"?"}',
        b'{"$bytes":3}',
        b'{"$tuple":{}}',
        b'{"$tuple":[],"a":1}',
        b'{"a":1,"a":2}',
        b'{"$array":{"dtype":"<f4","shape":[2],"data":"AAAA"}}',
        b'{"$array":{"dtype":"<f4","shape":[-1],"data":"AAAAAA=="}}',
        b'{"$array":{"dtype":"|O","shape":[1],"data":"AAAAAAAAAAA="}}',
        b'{"$array":{"dtype":"<f4","shape":9,"data":""}}',
        b'{"$array":[]}',
        b'{"$scalar":{"dtype":"|b1","shape":[1],"data":"AA=="}}',
        b"1" * 5000,
    ],
)
def test_text_that_is_no_state_is_refused(text: bytes) -> None:
    with pytest.raises(FormatError):
        decode_state(text)


@given(st.binary(max_size=40))
def test_any_bytes_give_a_state_or_a_format_error(data: bytes) -> None:
    # A lone surrogate may stand escaped in JSON; it is refused when it is written again.
    with contextlib.suppress(FormatError, BlobValueError):
        encode_state(decode_state(data))


BITS = ["MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"]


def make(kind: str, seed: int) -> Any:
    if kind == "python":
        return random.Random(seed)
    if kind == "legacy":
        return np.random.RandomState(seed)
    if kind.startswith("legacy/"):
        return np.random.RandomState(getattr(np.random, kind[7:])(seed))
    return np.random.Generator(getattr(np.random, kind)(seed))


def draw(generator: Any) -> list[float]:
    if isinstance(generator, random.Random):
        return [generator.random(), generator.gauss(0, 1), generator.getrandbits(40)]
    if isinstance(generator, np.random.RandomState):
        return [*generator.randn(3), generator.randint(99)]
    return [*generator.random(3, dtype=np.float32), *generator.normal(size=2), generator.integers(2**31)]


@pytest.mark.parametrize("kind", [*BITS, "legacy", "legacy/PCG64", "python"])
@pytest.mark.parametrize("new", [True, False])
def test_a_restored_generator_draws_the_same_numbers(kind: str, new: bool) -> None:
    generator = make(kind, 5)
    draw(generator)
    algorithm, state = rng_state(generator)
    state = decode_state(encode_state(state))
    assert algorithm == rng_algorithm(generator)
    expected = [draw(generator), draw(generator)]
    other = None if new else make(kind, 6)
    restored = rng_restore(other, algorithm, state)
    assert new or restored is other
    assert [draw(restored), draw(restored)] == expected


@pytest.mark.parametrize("kind", BITS)
@pytest.mark.parametrize("new", [True, False])
def test_spawning_continues_where_it_was(kind: str, new: bool) -> None:
    generator = make(kind, 5)
    generator.spawn(3)
    state = rng_state(generator)
    expected = draw(generator.spawn(1)[0])
    restored: Any = rng_restore(None if new else make(kind, 5), *state)
    assert draw(restored.spawn(1)[0]) == expected


def test_a_generator_without_a_seed_sequence_can_be_stored() -> None:
    class Seeds(np.random.bit_generator.ISeedSequence):
        def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
            return np.arange(1, n_words + 1, dtype=dtype)

    generator = np.random.Generator(np.random.PCG64(Seeds()))  # type: ignore[arg-type]  # it is one
    algorithm, state = rng_state(generator)
    assert state["seed_seq"] is None
    assert draw(rng_restore(None, algorithm, state)) == draw(generator)


def test_taking_a_state_waits_for_a_draw_in_another_thread(together: Any) -> None:
    generator = np.random.default_rng(0)

    def work(number: int) -> Any:
        if number:
            return generator.random(20_000)
        return [rng_restore(None, *rng_state(generator)) for _ in range(20)]

    assert not [result for result in together(3, work) if isinstance(result, Exception)]


@pytest.mark.parametrize(
    "thing", [object(), random.SystemRandom(), np.random.PCG64(1), type("R", (random.Random,), {})()]
)
def test_other_generators_are_refused(thing: object) -> None:
    with pytest.raises(BlobKindError, match="found"):
        rng_algorithm(thing)


def damaged() -> list[tuple[str, Any]]:
    twister = rng_state(make("MT19937", 1))[1]
    philox = rng_state(make("Philox", 1))[1]
    return [
        ("numpy.Generator/Nothing", {}),
        ("numpy.Thing/PCG64", {}),
        ("python.Random", {}),
        ("python.Random", {"state": (3, (1,), None)}),
        ("python.Random", None),
        ("numpy.Generator/PCG64", {"state": {}, "seed_seq": None}),
        ("numpy.Generator/PCG64", {"state": 1, "seed_seq": None}),
        ("numpy.Generator/PCG64", {**rng_state(make("PCG64", 1))[1], "seed_seq": {"entropy": "x"}}),
        (
            "numpy.Generator/MT19937",
            {**twister, "state": {**twister["state"], "state": {"key": [1], "pos": 1}}},
        ),
        (
            "numpy.Generator/MT19937",
            {**twister, "state": {**twister["state"], "state": {**twister["state"]["state"], "pos": 10**6}}},
        ),
        ("numpy.Generator/Philox", {**philox, "state": {**philox["state"], "buffer_pos": -1}}),
        ("numpy.RandomState/MT19937", {"bit_generator": "MT19937"}),
    ]


@pytest.mark.parametrize(("algorithm", "state"), damaged())
def test_a_damaged_generator_is_refused_and_the_live_one_stays(algorithm: str, state: Any) -> None:
    live = make("PCG64", 1)
    with pytest.raises(FormatError):
        rng_restore(live, algorithm, state)
    assert draw(live) == draw(make("PCG64", 1))


def test_a_state_of_another_algorithm_is_not_forced_in() -> None:
    with pytest.raises(MismatchError, match=r"Philox.*PCG64"):
        rng_restore(make("PCG64", 1), *rng_state(make("Philox", 1)))


def test_the_numbers_of_a_state_are_readable_json() -> None:
    _, state = rng_state(make("PCG64", 1))
    document = json.loads(encode_state(state))
    assert math.log2(int(document["state"]["state"]["state"]["$int"], 16)) < 128
