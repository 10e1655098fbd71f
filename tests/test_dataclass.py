"""Our dataclasses do what those of the standard library do."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, fields, replace
from functools import partial
from threading import Barrier, Thread
from typing import Any

import pytest

from tensorlang import dataclass as ours

OPTIONS: tuple[dict[str, bool], ...] = (
    {"frozen": True, "slots": True},
    {"frozen": True},
    {"slots": True},
    {},
    {"frozen": True, "slots": True, "eq": False},
    {"frozen": True, "slots": True, "repr": False},
    {"frozen": True, "slots": True, "order": True},
)


def declared(dataclass: Callable[..., Any]) -> dict[str, Any]:
    """Classes of every kind that there is here."""

    class Plain:
        a: int
        b: Any = 2
        c: list[int] = field(default_factory=list)

    class One:
        a: int

    class Empty:
        pass

    class Compared:
        """Fields that are left out of something."""

        a: int
        b: int = field(default=1, compare=False)
        c: int = field(default=2, hash=False)
        d: int = field(default=3, repr=False)

    class Finished:
        a: int
        b: list[int] = field(init=False, default_factory=list)
        c: int = field(init=False, default=7)

        def __post_init__(self) -> None:
            self.b.append(self.a)

    class Own:  # noqa: PLW1641
        a: int
        b: int = 0

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self)) and self.a == other.a

        def __repr__(self) -> str:
            return f"<{self.a}>"

    class Hashed:
        a: int

        def __hash__(self) -> int:
            return 5

    made = {kind.__name__: dataclass(kind) for kind in (Plain, One, Empty, Compared, Finished, Own, Hashed)}

    class Heir(made["Plain"]):  # type: ignore[misc, valid-type]
        b: Any = 3
        d: int = 4

    return {**made, "Heir": dataclass(Heir)}


ARGUMENTS: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
    ((), {}),
    ((1,), {}),
    ((1, 2), {}),
    ((1, 5), {}),
    ((2,), {"c": 9}),
    ((), {"a": 1, "d": 4}),
    ((1, 2, (3,)), {}),
    ((1, 2, 3, 4, 5), {}),
    ((1,), {"a": 2}),
    ((1,), {"unknown": 2}),
)


def outcome(ask: Callable[[], Any]) -> Any:
    """A result, or the error: its kind and its words."""
    try:
        return ask()
    except (TypeError, AttributeError) as error:
        return type(error), str(error).replace("test_dataclass.", "")


def told(made: Any, others: list[Any]) -> list[Any]:
    """All that can be asked of an object, as plain data."""
    other = copy.copy(made)
    hashed = [outcome(partial(hash, x)) for x in (made, *others)]
    return [
        repr(made) if "__repr__" in vars(type(made)) else "",
        [(f.name, getattr(made, f.name)) for f in fields(made)],
        type(made).__match_args__,
        [made == x for x in others],
        [h if isinstance(h, tuple) else h == hashed[0] for h in hashed],
        [copy.copy(made) == made, copy.deepcopy(made) == made],
        outcome(lambda: replace(made, a=3).a),
        [(outcome(lambda: setattr(other, "a", 1)), outcome(lambda: delattr(other, "a"))) for _ in fields(made)[:1]],
    ]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(options) or "none")
def test_classes_are_those_of_the_standard_library(options: dict[str, bool]) -> None:
    wanted, found = declared(dataclasses.dataclass(**options)), declared(ours.dataclass(**options))
    for name in wanted:
        made = []
        assert str(inspect.signature(found[name])) == str(inspect.signature(wanted[name]))
        for kind in (wanted[name], found[name]):
            tried = [outcome(lambda: kind(*args, **named)) for args, named in ARGUMENTS]  # noqa: B023
            objects = [x for x in tried if not isinstance(x, tuple)]
            refused = [x if isinstance(x, tuple) else "" for x in tried]
            made.append([refused, *(told(x, objects) for x in objects[:3]), len(objects)])
        assert made[0] == made[1], name


def test_the_signature_of_an_heir_with_a_constructor_is_its_own() -> None:
    class Heir(Sent):
        def __init__(self, only: int) -> None:
            super().__init__(only)

    assert str(inspect.signature(Heir)) == "(only: 'int') -> 'None'"


@ours.dataclass(frozen=True, slots=True)
class Sent:
    """What is pickled."""

    a: int
    b: tuple[int, ...] = ()


def test_frozen_ones_are_pickled_and_matched() -> None:
    match pickle.loads(pickle.dumps(Sent(1, (2,)))):
        case Sent(a, (b,)):
            assert (a, b) == (1, 2)
        case _:
            pytest.fail("no match")
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'a'"):
        Sent(1).a = 2  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"Sent.__init__\(\) missing 1 required positional argument: 'a'"):
        Sent()  # type: ignore[call-arg]


def test_threads_may_make_the_first_object_at_once() -> None:
    @ours.dataclass(frozen=True, slots=True)
    class Raced:
        a: int

    started, made = Barrier(4), list[Raced]()

    def make() -> None:
        started.wait()
        made.append(Raced(3))

    threads = [Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [Raced(3)] * 4
