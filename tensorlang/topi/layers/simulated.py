"""Quantization that stays in floats: what rounding to a dtype would make of numbers, the dtype being an argument."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, as_expr, binary, cast
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import normalized
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed

SQNN_DTYPE_TO_CODE = {"disable": 0, "int8": 1, "uint8": 2, "int32": 3}
"""Numbers of the dtypes that can be simulated; `disable` leaves values as they are."""
SQNN_CODE_TO_DTYPE = {code: dtype for dtype, code in SQNN_DTYPE_TO_CODE.items()}


@checked
def simulated_quantize(
    data: Tensor,
    out_dtype: Tensor,
    output_scale: Tensor,
    output_zero_point: Tensor,
    axis: int = -1,
    name: str = "simulated_quantize",
) -> Tensor:
    """Return `clip(round(data / scale) + zero_point)` in the dtype of `data`, to the limits of a dtype.

    `out_dtype` is an integer of shape (): one of `SQNN_DTYPE_TO_CODE`, or 0 for `data` itself. Scales and zero points
    are vectors of one element, or of one for each place along `axis`. DefinitionError for other shapes.

        >>> import numpy as np
        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.nn.simulated_quantize, [0.6, 400.0], np.array(1, np.int32), [0.5], [3])
        array([  4., 127.], dtype=float32)
    """
    index = _channels(name, data, (output_scale, output_zero_point), out_dtype, axis)

    def element(*i: Expr) -> Expr:
        value = data(*i)
        steps = te.round(value / index(output_scale, i)) + index(output_zero_point, i)
        made = value
        for dtype, code in SQNN_DTYPE_TO_CODE.items():
            if dtype != "disable":
                low, high = (te.const(float(bound), data.dtype) for bound in dtypes.limits(dtype))
                inside = te.maximum(te.minimum(steps, high), low)
                made = te.select(binary("eq", out_dtype(), as_expr(code)), inside, made)
        return made

    return computed(data.shape, element, name)


@checked
def simulated_dequantize(
    data: Tensor,
    in_dtype: Tensor,
    input_scale: Tensor,
    input_zero_point: Tensor,
    axis: int = -1,
    name: str = "simulated_dequantize",
) -> Tensor:
    """Return `(data - zero_point) * scale` in the dtype of `data`, or `data` itself where `in_dtype` is 0.

    Arguments are those of simulated_quantize. DefinitionError for other shapes.

        >>> import numpy as np
        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.nn.simulated_dequantize, [4.0, 127.0], np.array(1, np.int32), [0.5], [3])
        array([ 0.5, 62. ], dtype=float32)
    """
    index = _channels(name, data, (input_scale, input_zero_point), in_dtype, axis)

    def element(*i: Expr) -> Expr:
        value = data(*i)
        made = (value - index(input_zero_point, i)) * index(input_scale, i)
        known = (c for dtype, c in SQNN_DTYPE_TO_CODE.items() if dtype != "disable")
        return te.select(te.any(*(binary("eq", in_dtype(), as_expr(c)) for c in known)), made, value)

    return computed(data.shape, element, name)


def _channels(
    name: str, data: Tensor, vectors: Sequence[Tensor], code: Tensor, axis: int
) -> Callable[[Tensor, Sequence[Expr]], Expr]:
    """The element of a vector for an element of the data, as a float; DefinitionError for other arguments."""
    where = normalized(name, data, axis)
    floats, integer = dtypes.info(data.dtype).is_float, code.ndim == 0 and dtypes.info(code.dtype).is_integer
    if not floats or not integer or any(x.ndim != 1 for x in vectors):
        raise DefinitionError(
            f"{name} wants floats, an integer of shape () for the dtype, and vectors of scales and zero points; got "
            f"{data}, {code} and {list(vectors)}"
        )
    return lambda x, i: cast(x(binary("floormod", i[where], x.shape[0])), data.dtype)
