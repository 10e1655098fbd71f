"""`te.evaluate`: the values of functions of tensors, by the reference, without a schedule and without a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes
from tensorlang.errors import DefinitionError, shown
from tensorlang.ir.expr import Expr
from tensorlang.location import caller
from tensorlang.te.define import compute, placeholder
from tensorlang.te.operation import Tensor, buffers
from tensorlang.te.program import canonical
from tensorlang.te.reference import evaluate as run

Array = npt.NDArray[Any]
KNOWN = frozenset(info.numpy for info in dtypes.TABLE.values())
_USUAL = {"int64": "int32", "float64": "float32"}
"""What numbers of Python become, as elsewhere in te; arrays of NumPy keep their dtype."""


def evaluate(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Return what a function of tensors is of these arrays: to try it out, not to compute with it.

    The function is called with a placeholder for each array or list, an element for each number, a tuple of such for a
    tuple; options are passed as they are, but for arrays of NumPy. Numbers in lists are int32, float32 or bool, arrays
    keep their dtype. What it returns, tensors or expressions, is evaluated by the NumPy reference; returned are arrays
    and numbers: one, or a tuple. DefinitionError where it returns something else.

    Example:
        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.softmax, [[0.0, 0.0]])
        array([[0.5, 0.5]], dtype=float32)
        >>> te.evaluate(te.floordiv, -7, 2)
        np.int32(-4)
    """
    if not callable(function) or isinstance(function, Tensor):
        text = f"te.evaluate wants a function of tensors, as in te.evaluate(topi.exp, x), got {shown(function)}"
        raise DefinitionError(text, caller())
    given: list[tuple[Tensor, Array]] = []
    named = {name: _declared(v, given) if isinstance(v, np.ndarray) else v for name, v in options.items()}
    made = function(*(_declared(value, given) for value in arguments), **named)
    parts = made if isinstance(made, tuple | list) else [made]
    tensors = [_tensor(part) for part in parts]
    program, names = canonical(tensors)
    values = run(program, {names[id(t.op)]: array for t, array in given if id(t.op) in names})
    found = tuple(values[buffers(program[names[id(t.op)]])[t.value_index].name] for t in tensors)
    whole = tuple(array[()] if isinstance(part, Expr) else array for part, array in zip(parts, found, strict=True))
    return whole if isinstance(made, tuple | list) else whole[0]


def _declared(value: Any, given: list[tuple[Tensor, Array]]) -> Any:
    """What stands for an argument; its placeholder is kept beside its array."""
    if isinstance(value, tuple):
        return tuple(_declared(part, given) for part in value)
    array = _array(value)
    if isinstance(value, bool | int | float | list) and not isinstance(value, np.generic):
        array = _usual(value, array)
    tensor = placeholder(array.shape, array.dtype, f"x{len(given)}")
    given.append((tensor, array))
    return tensor() if isinstance(value, bool | int | float | np.generic) else tensor


def _usual(value: Any, array: Array) -> Array:
    """Numbers of Python in their usual dtype; DefinitionError where one does not fit, rather than another number."""
    dtype = _USUAL.get(array.dtype.name)
    if dtype is None:
        return array
    with np.errstate(over="ignore"):
        made = array.astype(dtype)
    kept = np.isfinite if made.dtype.kind == "f" else np.asarray
    if not np.array_equal(kept(made), kept(array)):
        advice = f"numbers of Python are {dtype}; pass np.array(..., {array.dtype.name!r})"
        raise DefinitionError(f"te.evaluate: {shown(value)} does not fit: {advice}", caller())
    return made


def _array(value: Any) -> Array:
    """An argument as NumPy has it; DefinitionError for what is no number and no array of numbers."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):
        array = np.asarray(None)
    if isinstance(value, np.ma.MaskedArray):
        raise DefinitionError("te.evaluate does not see the mask of a masked array; pass a.filled(value)", caller())
    if isinstance(value, Tensor) or (array.dtype.kind not in "biuf" and array.dtype not in KNOWN):
        advice = "tensors are made of them; what is no array is an option, by its name"
        raise DefinitionError(f"te.evaluate takes arrays and numbers, got {shown(value)}: {advice}", caller())
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _tensor(made: Any) -> Tensor:
    if isinstance(made, Tensor):
        return made
    if not isinstance(made, Expr):
        raise DefinitionError(f"te.evaluate wants a function that returns tensors, got {shown(made)}", caller())
    whole = compute((), lambda: made, name="value")
    assert isinstance(whole, Tensor)
    return whole
