"""The tensor expression language: declare inputs, computations and reductions.

    from tensorlang import te

    n = te.var("n")
    A = te.placeholder((n, n), name="A")
    B = te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), "k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)

Names of higher floors (create_schedule) are looked up in the package's table when they are used.
"""

from typing import TYPE_CHECKING, Any

from tensorlang.ir.expr import Expr, Var
from tensorlang.names import listing
from tensorlang.names import lookup as offered
from tensorlang.te import hybrid
from tensorlang.te.autodiff import gradient
from tensorlang.te.axis import Axis, Range
from tensorlang.te.axis import Axis as IterVar
from tensorlang.te.define import compute, extern, placeholder, tag_scope, var
from tensorlang.te.domain import reduce_axis, size_var, thread_axis
from tensorlang.te.eager import evaluate
from tensorlang.te.hybrid import allocate, output_tensor, parallel, serial, unroll, vectorize
from tensorlang.te.hybrid.words import range_ as range
from tensorlang.te.machine import reinterpret
from tensorlang.te.math import abs_ as abs
from tensorlang.te.math import (
    acos,
    acosh,
    add,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    cast,
    ceil,
    ceildiv,
    clz,
    const,
    copysign,
    cos,
    cosh,
    div,
    erf,
    exp,
    exp2,
    exp10,
    expm1,
    floor,
    floordiv,
    floormod,
    fma,
    fmod,
    hypot,
    if_then_else,
    indexdiv,
    indexmod,
    infinity,
    isfinite,
    isinf,
    isnan,
    ldexp,
    likely,
    log,
    log1p,
    log2,
    log10,
    lookup,
    max_value,
    maximum,
    min_value,
    minimum,
    multiply,
    nearbyint,
    popcount,
    power,
    rsqrt,
    select,
    sigmoid,
    sin,
    sinh,
    sqrt,
    subtract,
    tan,
    tanh,
    trunc,
    truncdiv,
    truncmod,
)
from tensorlang.te.math import pow_ as pow
from tensorlang.te.math import round_ as round
from tensorlang.te.operation import ComputeOp, ExternOp, HybridOp, Operation, PlaceholderOp, Tensor, TensorSlice
from tensorlang.te.recurrence import recurrence
from tensorlang.te.reductions import all_ as all
from tensorlang.te.reductions import any_ as any
from tensorlang.te.reductions import comm_reducer
from tensorlang.te.reductions import max_ as max
from tensorlang.te.reductions import min_ as min
from tensorlang.te.reductions import prod_ as prod
from tensorlang.te.reductions import sum_ as sum
from tensorlang.te.scan import scan
from tensorlang.te.views import view

if TYPE_CHECKING:  # what the package offers here, for type checkers and editors
    from tensorlang import schedule as schedule
    from tensorlang.driver import create_prim_func as create_prim_func
    from tensorlang.schedule import Schedule as Schedule
    from tensorlang.schedule import Stage as Stage
    from tensorlang.schedule import create_schedule as create_schedule
    from tensorlang.te import operation
    from tensorlang.te.classic import ScanOp as ScanOp
    from tensorlang.te.tensor_intrin import decl_tensor_intrin as decl_tensor_intrin
    from tensorlang.te.tensor_intrin import intrin as intrin
    from tensorlang.te.tile_buffer import decl_buffer as decl_buffer

    tensor = operation

__all__ = [
    "Axis",
    "ComputeOp",
    "Expr",
    "ExternOp",
    "HybridOp",
    "IterVar",
    "Operation",
    "PlaceholderOp",
    "Range",
    "Tensor",
    "TensorSlice",
    "Var",
    "abs",
    "acos",
    "acosh",
    "add",
    "all",
    "allocate",
    "any",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cast",
    "ceil",
    "ceildiv",
    "clz",
    "comm_reducer",
    "compute",
    "const",
    "copysign",
    "cos",
    "cosh",
    "div",
    "erf",
    "evaluate",
    "exp",
    "exp2",
    "exp10",
    "expm1",
    "extern",
    "floor",
    "floordiv",
    "floormod",
    "fma",
    "fmod",
    "gradient",
    "hybrid",
    "hypot",
    "if_then_else",
    "indexdiv",
    "indexmod",
    "infinity",
    "isfinite",
    "isinf",
    "isnan",
    "ldexp",
    "likely",
    "log",
    "log1p",
    "log2",
    "log10",
    "lookup",
    "max",
    "max_value",
    "maximum",
    "min",
    "min_value",
    "minimum",
    "multiply",
    "nearbyint",
    "output_tensor",
    "parallel",
    "placeholder",
    "popcount",
    "pow",
    "power",
    "prod",
    "range",
    "recurrence",
    "reduce_axis",
    "reinterpret",
    "round",
    "rsqrt",
    "scan",
    "select",
    "serial",
    "sigmoid",
    "sin",
    "sinh",
    "size_var",
    "sqrt",
    "subtract",
    "sum",
    "tag_scope",
    "tan",
    "tanh",
    "thread_axis",
    "trunc",
    "truncdiv",
    "truncmod",
    "unroll",
    "var",
    "vectorize",
    "view",
]


if not TYPE_CHECKING:  # a type checker knows what there is

    def __getattr__(name: str) -> Any:
        return offered(__name__, name)


def __dir__() -> list[str]:
    return listing(__name__)
