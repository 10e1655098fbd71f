"""Whatever a function of the library is given, what comes out is a tensor or an error of tensorlang's."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from tensorlang import te, topi
from tensorlang.errors import DefinitionError, InternalError, TensorlangError
from tensorlang.topi.table import functions

FUNCTIONS = functions()
T = te.placeholder((4, 4), name="T")
IMAGES = te.placeholder((1, 4, 4, 4), name="I")
HOSTILE: tuple[Any, ...] = (
    3,
    None,
    "x",
    [1, 2],
    (T, T),
    np.ones((2, 2), "float32"),
    1.5,
    object(),
    T[0, 0],
    -1,
    True,
    {},
    np.float32(2),
)
FITTING = (T, T, T, IMAGES)


def _calls(function: Callable[..., Any], draw: Random) -> list[tuple[list[Any], dict[str, Any]]]:
    """Every argument hostile; one hostile and the others not; and some of those that may be left out."""
    parameters = inspect.signature(function).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty]
    others = [p.name for p in parameters if p.default is not p.empty]
    calls: list[tuple[list[Any], dict[str, Any]]] = [([value] * len(needed), {}) for value in (*HOSTILE, T)]
    for place in range(len(needed)):
        for value in HOSTILE:
            calls.append(([value if place == p else draw.choice(FITTING) for p in range(len(needed))], {}))
    for name in others:
        for value in draw.sample(HOSTILE, 6):
            calls.append(([draw.choice((T, IMAGES))] * len(needed), {name: value}))
    return calls


@pytest.mark.parametrize("name", FUNCTIONS)
def test_only_errors_of_tensorlang_come_out(name: str) -> None:
    refused = 0
    for arguments, named in _calls(FUNCTIONS[name], Random(name)):
        try:
            FUNCTIONS[name](*arguments, **named)
        except InternalError:
            raise
        except TensorlangError:
            refused += 1
        except Exception as error:
            pytest.fail(f"topi.{name}(*{arguments}, **{named}): {type(error).__name__}: {error}")
    assert refused


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        (
            "exp",
            (3,),
            r"topi\.exp takes a tensor for x, got int 3; call topi\.exp\(x, name='exp'\) with what te",
        ),
        ("add", (1, 2.5), r"topi\.add wants a tensor, got numbers only"),
        (
            "relu",
            (np.ones((2, 3)),),
            r"ndarray .*declare te\.placeholder\(\(2, 3\), name=\"x\", dtype=\"float64\"",
        ),
        (
            "split",
            (T, None),
            r"a whole number or a sequence of whole numbers for indices_or_sections, got None",
        ),
        (
            "transpose",
            (T, (1, "a")),
            r"a sequence of whole numbers or None for axes, got tuple .*; call topi\.tr",
        ),
        ("clip", (T, "a", 1), r"a number or an expression for a_min, got str 'a'"),
    ],
)
def test_messages_say_what_was_got_what_was_wanted_and_what_to_do(
    name: str, arguments: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(DefinitionError, match=message) as caught:
        FUNCTIONS[name](*arguments)
    assert caught.value.where is not None and caught.value.where.file == __file__


def test_numbers_of_numpy_and_constants_are_numbers() -> None:
    extent = te.placeholder((1, 2), name="E").shape[1]
    axes: list[Any] = [1, np.int64(1), extent - 1]
    for axis in axes:
        assert topi.expand_dims(T, axis).ndim == 3
    shape: Any = np.array([2, 8])
    assert topi.reshape(T, shape).ndim == 2
    half: Any = np.float16
    assert topi.cast(T, half).dtype == "float16"


def test_wrong_numbers_of_arguments_are_pythons_to_refuse() -> None:
    matmul: Any = topi.matmul
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'b'"):
        matmul(T)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_pickled_by_their_names(name: str) -> None:
    assert pickle.loads(pickle.dumps(FUNCTIONS[name])) is FUNCTIONS[name]
