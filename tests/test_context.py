"""Contexts: one stack per class and thread, and nothing stale on it whatever happens."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from jobcore.errors import ContextError
from jobcore.graph import DefaultManaged, Managed


class Kitchen(Managed):
    pass


class Bakery(Kitchen):
    pass


class Garden(Managed):
    pass


class Lamp(DefaultManaged):
    pass


class Oven(Managed):
    """Enters a garden with it; fails where it is told to."""

    def __init__(self, fail: str = "") -> None:
        self.fail = fail
        self.garden = Garden()
        self.log: list[str] = []

    def _enter_context(self, inner: ExitStack) -> None:
        inner.enter_context(self.garden)
        if self.fail == "enter":
            raise ValueError("no gas")

    def _leave_context(self, error: BaseException | None) -> None:
        self.log.append(
            f"{type(error).__name__}, garden is current: {Garden.current(required=False) is not None}"
        )
        if self.fail == "leave":
            raise ValueError("door stuck")


def nothing_current() -> bool:
    return all(c.current(required=False) is None for c in (Kitchen, Bakery, Garden, Lamp, Oven))


@pytest.fixture(autouse=True)
def _clean_stacks() -> Iterator[None]:
    yield
    assert nothing_current()


def test_each_thread_sees_its_own_object_only(together: Callable[..., list[Any]]) -> None:
    def work(_: int) -> bool:
        mine = Kitchen()
        fine = Kitchen.current(required=False) is None
        for _ in range(100):
            with mine as entered:
                fine = fine and entered is mine and all(Kitchen.current() is mine for _ in range(100))
        return fine and Kitchen.current(required=False) is None

    with Kitchen():
        assert together(8, work) == [True] * 8


def test_one_object_is_current_in_many_threads_at_once(together: Callable[..., list[Any]]) -> None:
    shared = Kitchen()

    def work(_: int) -> bool:
        with shared:
            return Kitchen.current() is shared

    assert all(together(8, work))


def test_a_decorated_function_runs_inside() -> None:
    kitchen = Kitchen()

    @kitchen
    def cook(dish: str, *, salt: int = 0) -> tuple[str, int, bool]:
        """Cook."""
        return dish, salt, Kitchen.current() is kitchen

    assert cook("soup", salt=2) == ("soup", 2, True)
    assert (cook.__name__, cook.__doc__) == ("cook", "Cook.")


def test_functions_that_would_run_after_the_context_cannot_be_decorated() -> None:
    def generator() -> Iterator[int]:
        yield 1

    async def coroutine() -> None:
        await asyncio.sleep(0)

    async def both() -> Any:
        yield 1

    for function in (generator, coroutine, both):
        with pytest.raises(TypeError, match="cannot decorate"):
            Kitchen()(function)


def test_nothing_active() -> None:
    with pytest.raises(ContextError, match="no Kitchen is active in this thread"):
        Kitchen.current()
    with pytest.raises(RuntimeError, match="with Kitchen"):
        Kitchen.current()
    assert Kitchen.current(required=False) is None
    given = Kitchen()
    assert Kitchen.current(given) is given


def test_a_given_value_must_be_of_the_class() -> None:
    bakery = Bakery()
    assert Kitchen.current(bakery) is bakery
    with pytest.raises(TypeError, match="expected a Bakery, found Kitchen"):
        Bakery.current(Kitchen())  # type: ignore[arg-type]  # the wrong type is the point


def test_a_default_is_fresh_and_not_left_behind() -> None:
    first, second = Lamp.current(), Lamp.current()
    assert isinstance(first, Lamp)
    assert first is not second
    assert Lamp.current(required=False) is None
    with Lamp() as lamp:
        assert Lamp.current() is lamp


def test_classes_nest_independently() -> None:
    with Kitchen() as kitchen, Garden() as garden, Kitchen() as inner:
        assert Kitchen.current() is inner
        assert Garden.current() is garden
        with kitchen:
            assert Kitchen.current() is kitchen
        assert Kitchen.current() is inner


def test_a_subclass_is_current_for_its_bases_and_not_the_other_way_round() -> None:
    with Bakery() as bakery:
        assert Bakery.current() is bakery
        assert Kitchen.current() is bakery
        with Kitchen() as kitchen:
            assert Kitchen.current() is kitchen
            assert Bakery.current() is bakery


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, GeneratorExit])
def test_a_block_that_raises_leaves_nothing_behind(error: type[BaseException]) -> None:
    with pytest.raises(error), Kitchen(), Bakery():
        raise error


def test_what_is_entered_with_an_object_is_left_before_it_finishes() -> None:
    with Oven() as oven:
        assert Garden.current() is oven.garden
    with pytest.raises(KeyError), oven:
        raise KeyError
    assert oven.log == ["NoneType, garden is current: False", "KeyError, garden is current: False"]


@pytest.mark.parametrize("fail", ["enter", "leave"])
def test_a_context_that_fails_by_itself_leaves_nothing_behind(fail: str) -> None:
    oven = Oven(fail)
    with pytest.raises(ValueError, match=r"no gas|door stuck"), oven:
        assert fail == "leave"


def test_leaving_in_the_wrong_order_is_an_error_and_cleans_up() -> None:
    first, second = Kitchen(), Bakery()
    first.__enter__()
    second.__enter__()
    with pytest.raises(ContextError, match="Kitchen is left before what was entered inside it: Bakery"):
        first.__exit__(None, None, None)
    assert Kitchen.current() is second
    second.__exit__(None, None, None)


def test_a_generator_that_ends_late_does_not_take_the_others_with_it() -> None:
    def holds() -> Iterator[None]:
        with Kitchen():
            yield

    ends, closed = holds(), holds()
    next(ends)
    next(closed)
    with Kitchen() as kitchen:
        with pytest.raises(ContextError, match="left before"):
            next(ends, None)
        assert Kitchen.current() is kitchen
        closed.close()
        assert Kitchen.current() is kitchen


def test_the_wrong_order_does_not_hide_an_exception_under_way() -> None:
    first, second = Kitchen(), Kitchen()
    first.__enter__()
    second.__enter__()
    error = ValueError("the real one")
    assert first.__exit__(ValueError, error, None) is None
    assert "left before" in error.__notes__[0]
    second.__exit__(None, None, None)


def test_the_wrong_order_does_not_hide_a_failing_clean_up() -> None:
    oven, other = Oven("leave"), Oven()
    oven.__enter__()
    other.__enter__()
    with pytest.raises(ValueError, match="door stuck") as caught:
        oven.__exit__(None, None, None)
    assert "inside it: Oven" in caught.value.__notes__[0]
    other.__exit__(None, None, None)


def test_an_object_that_was_never_entered_cannot_be_left() -> None:
    with pytest.raises(ContextError, match="never entered in this thread"):
        Kitchen().__exit__(None, None, None)
    kitchen = Kitchen()
    caught: list[BaseException] = []

    def leave() -> None:
        try:
            kitchen.__exit__(None, None, None)
        except ContextError as error:
            caught.append(error)

    with kitchen:
        thread = threading.Thread(target=leave)
        thread.start()
        thread.join()
        assert len(caught) == 1
        assert Kitchen.current() is kitchen


def test_one_object_may_be_entered_again_inside_itself() -> None:
    kitchen = Kitchen()
    with kitchen:
        with kitchen:
            pass
        assert Kitchen.current() is kitchen
