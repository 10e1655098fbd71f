"""Values that neighbouring threads take from each other's registers.

CUDA C++ Programming Guide, "Warp Shuffle Functions"; the OpenCL Extension Specification, `cl_khr_subgroup_shuffle`.
"""

from __future__ import annotations

from tensorlang import dtypes
from tensorlang.errors import TargetError
from tensorlang.ir.shuffle import Shuffle
from tensorlang.target.c_source import code as c
from tensorlang.target.c_source.code import Code, limits
from tensorlang.target.c_source.dialect import SUB_GROUP, Dialect
from tensorlang.target.c_source.expressions import index, value
from tensorlang.target.c_source.scope import Scope

_WARP = 32


def carrier(dialect: Dialect, dtype: str) -> str:
    """The C type in which a value goes from thread to thread."""
    d = dtypes.info(dtype)
    return dialect.types[dtype if d.is_float or d.bits >= 32 else "int32"]


def shuffled(scope: Scope, shuffle: Shuffle) -> Code:
    """What another thread has, for all threads of a group of neighbours at once."""
    width, lane = shuffle.width, index(scope, shuffle.lane)
    own = value(scope, shuffle.value)
    carried = carrier(scope.dialect, own.dtype)
    operand = own.text if carried == scope.dialect.types[own.dtype] else f"({carried}){own.at(c.PREFIX)}"
    if scope.dialect.sub_groups:
        text = f"{SUB_GROUP}({operand}, (uint)({_in_sub_group(scope, width)}{lane.at(c.SUM + 1)}))"
    else:
        text = f"__shfl_sync({_mask(scope, width)}, {operand}, {lane.text}, {width})"
    if shuffle.dtype == "bool":
        return Code(f"{text} != 0", own.dtype, c.EQUAL, limits("bool"))
    return Code(text, own.dtype, interval=limits(own.dtype))


def _in_sub_group(scope: Scope, width: int) -> str:
    """What is added to the number of a lane in its group. Sub-groups may end where a row of threads along x does."""
    x, y, z = scope.block
    if width != x:
        raise TargetError(
            f"a kernel keeps an array of scope 'warp' in the registers of {width} threads, {x} along threadIdx.x and "
            f"{width // x} along threadIdx.y, and OpenCL tells lanes along x only; bind them all to threadIdx.x, or "
            "use scope 'shared'"
        )
    if width == _WARP or y * z == 1:
        return ""
    return f"get_sub_group_local_id() - {scope.variables['threadIdx.x'].text} + "


def _first(scope: Scope, width: int) -> str:
    """The number in its warp of the first thread of a group of neighbours; empty where it is 0."""
    x, y, z = scope.block
    rows, planes = (scope.variables[f"threadIdx.{axis}"].text for axis in "yz")
    if width == _WARP or x * y * z == width:
        return ""
    if width == x * y:
        number = planes
    else:
        number = rows if z == 1 else f"({rows} + {y} * {planes})"
    return f"{number} % {_WARP // width} * {width}"


def _mask(scope: Scope, width: int) -> str:
    """The threads of a warp that exchange values: those of one group, as others may be elsewhere."""
    first, bits = _first(scope, width), f"0x{2**width - 1:x}u"
    return f"{bits} << {first}" if first else bits
