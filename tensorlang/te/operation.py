"""Operations, tensors, and the two expression nodes that only te has: Read and Reduce.

A user writes reads as `Read(Tensor, index)`. `Program` rewrites them to `Load(Buffer, index)`, so that a
canonical operation is pure data keyed by names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Buffer, Expr, ExprLike, ExprOperators, Load, Printable, Var, as_expr, to_text, walk
from tensorlang.ir.stmt import Stmt, stmt_exprs
from tensorlang.ir.whole import Whole
from tensorlang.location import Location, caller
from tensorlang.names import Explained, lookup
from tensorlang.te.axis import Axis
from tensorlang.te.check import check_read
from tensorlang.te.reducer import Reducer as Reducer

PRECISION = "precision"
"""The attribute of a stage that allows a lower precision of its factors: "tf32" for products of float32."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Reduce(Expr, Printable):
    """Value `index` of combining `sources` over `axes`, where `where` holds (None: everywhere).

    `init` replaces the identity as the value that the reduction starts from.
    """

    reducer: Reducer
    sources: tuple[Expr, ...]
    axes: tuple[Axis, ...]
    where: Expr | None
    index: int
    dtype: str
    init: tuple[Expr, ...] = ()

    def label(self) -> tuple[object, ...]:
        return self.reducer, tuple(a.name for a in self.axes), self.index, self.where is None, len(self.init)

    def children(self) -> tuple[Expr, ...]:
        return self.sources + self.init + (() if self.where is None else (self.where,))

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        n, m = len(self.sources), len(self.init)
        where = None if self.where is None else children[-1]
        return Reduce(self.reducer, children[:n], self.axes, where, self.index, self.dtype, children[n : n + m])

    def start(self) -> tuple[Expr, ...]:
        """The values before the first update."""
        return self.init or self.reducer.identity

    def text(self) -> str:
        axes = ", ".join(f"{a.name} in [{a.lower}, {a.lower + a.extent})" for a in self.axes)
        where = "" if self.where is None else f", where={to_text(self.where)}"
        init = "" if not self.init else f", init=({', '.join(map(to_text, self.init))})"
        part = f"[{self.index}]" if len(self.sources) > 1 else ""
        return f"{self.reducer.text()}({', '.join(map(to_text, self.sources))}; {axes}{where}{init}){part}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tensor(Explained, Whole, ExprOperators):
    """Output `value_index` of an operation. `A[i, j]`, `A(i, j)` and `A[i][j]` read an element.

    `A + B`, `A * 2`, `-A`, `A < B` are tensors: element by element, shapes broadcast as NumPy does. A tensor without
    dimensions stands for its element, and what is made of such ones is an expression.
    """

    op: Operation
    value_index: int = 0
    _called: ClassVar[str] = "{}(A)"

    @property
    def name(self) -> str:
        return self.op.name if self.op.num_outputs == 1 else f"{self.op.name}.v{self.value_index}"

    @property
    def shape(self) -> tuple[Expr, ...]:
        return self.op.shapes[self.value_index] if isinstance(self.op, ExternOp | HybridOp) else self.op.shape

    @property
    def dtype(self) -> str:
        return self.op.dtypes[self.value_index]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def as_expr(self) -> Expr:
        """A zero-dimensional tensor stands for its element."""
        return Read.checked(self, ())

    def combined(self, op: str, *operands: Any) -> Any:
        """A tensor of the results of an operator; None where all operands are single elements."""
        if not any(x.ndim for x in operands if isinstance(x, Tensor)):
            return None
        return lookup(__name__, "elementwise")(op, *operands)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        array = next((x for x in inputs if isinstance(x, np.ndarray) and x.ndim), None)
        if array is not None and self.ndim:
            declared = f'te.placeholder({array.shape}, "{array.dtype}")'
            text = f"np.{ufunc.__name__} computes with arrays, and {self.name} is a tensor of a program"
            raise DefinitionError(f"{text}; declare {declared} for the array, and pass that to the kernel", caller())
        return ExprOperators.__array_ufunc__(self, ufunc, method, *inputs, **options)

    def __neg__(self) -> Any:
        made = self.combined("neg", self)
        return ExprOperators.__neg__(self) if made is None else made

    def __invert__(self) -> Any:
        made = self.combined("invert", self)
        return ExprOperators.__invert__(self) if made is None else made

    def astype(self, dtype: str) -> Any:
        """Convert to a dtype with NumPy's conversion rules."""
        made = self.combined("cast", self, dtype)
        return ExprOperators.astype(self, dtype) if made is None else made

    def __getitem__(self, index: Any) -> Expr:
        parts = index if isinstance(index, tuple) else (index,)
        if len(parts) < self.ndim:
            return TensorSlice(self, parts)  # type: ignore[return-value]  # `A[i][j]` is an element in the end
        return Read.checked(self, parts)

    def __call__(self, *index: ExprLike) -> Expr:
        return Read.checked(self, index)

    def same_as(self, other: object) -> bool:
        """Whether both are one tensor, as `==` says."""
        return self == other

    def __hash__(self) -> int:
        return hash((id(self.op), self.value_index))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tensor) and self.op is other.op and self.value_index == other.value_index

    def _repr_html_(self) -> str:
        """What a notebook shows: the tensor, and how it is declared."""
        return str(lookup(__name__, "tensor_html")(self))

    def __repr__(self) -> str:
        return f"Tensor(shape=[{', '.join(map(str, self.shape))}], dtype={self.dtype}, name={self.name})"


@dataclass(frozen=True, slots=True)
class TensorSlice(ExprOperators):
    """`A[i]` of a tensor of higher rank, waiting for the rest: `A[i][j]`."""

    tensor: Tensor
    index: tuple[Any, ...]

    def __getitem__(self, index: Any) -> Any:
        return self.tensor[self.index + (index if isinstance(index, tuple) else (index,))]

    if not TYPE_CHECKING:  # a type checker knows what there is

        def __getattr__(self, name: str) -> Any:
            known, own = [*map(str, self.index)], self.tensor.name
            whole = ", ".join([*known, *"klmnop"[: self.tensor.ndim - len(known)]])
            raise AttributeError(
                f"{own}[{', '.join(known)}] waits for the rest of its index, and has no {name!r}; "
                f"te.sum({own}[{whole}], axis=k) is a sum over k = te.reduce_axis((0, n)), so are te.max and te.min"
            )

    def as_expr(self) -> Expr:
        return Read.checked(self.tensor, self.index)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Read(Expr, Printable):
    """An element of a tensor, in a user's expression."""

    tensor: Tensor
    index: tuple[Expr, ...]

    @staticmethod
    def checked(tensor: Tensor, index: tuple[Any, ...]) -> Read:
        """Build a read after checking rank and index dtypes; DefinitionError names the user's line."""
        return Read(tensor, check_read(tensor.name, tensor.ndim, index))

    def label(self) -> tuple[object, ...]:
        return (self.tensor,)

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.tensor.dtype

    def children(self) -> tuple[Expr, ...]:
        return self.index

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        return Read(self.tensor, children)

    def text(self) -> str:
        return f"{self.tensor.name}[{', '.join(map(to_text, self.index))}]"


class Remembered:
    """What others may know something of, as long as it is there (`weakref`)."""

    __slots__ = ("__weakref__",)


@dataclass(frozen=True, slots=True, eq=False)
class PlaceholderOp(Remembered):
    """An input."""

    name: str
    shape: tuple[Expr, ...]
    dtype: str
    location: Location | None = None
    num_outputs: int = 1

    @property
    def tag(self) -> str:
        """Inputs have none."""
        return ""

    @property
    def dtypes(self) -> tuple[str, ...]:
        return (self.dtype,)

    @property
    def axis(self) -> tuple[Axis, ...]:
        return ()

    @property
    def reduce_axis(self) -> tuple[Axis, ...]:
        return ()

    @property
    def input_tensors(self) -> list[Tensor]:
        return []

    def output(self, index: int = 0) -> Tensor:
        """Output `index` as a tensor."""
        return Tensor(self, index)


@dataclass(frozen=True, slots=True, eq=False)
class ComputeOp(Remembered):
    """`outputs[axes] = body`, at every point of the axes where all of `where` hold (the rest is padding).

    A body is either free of reductions, or one Reduce per output over the same reduce axes.
    """

    name: str
    axes: tuple[Axis, ...]
    reduce_axes: tuple[Axis, ...]
    body: tuple[Expr, ...]
    where: tuple[Expr, ...] = ()
    tag: str = ""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    location: Location | None = None

    @property
    def axis(self) -> tuple[Axis, ...]:
        return self.axes

    @property
    def reduce_axis(self) -> tuple[Axis, ...]:
        return self.reduce_axes

    @property
    def num_outputs(self) -> int:
        return len(self.body)

    @property
    def shape(self) -> tuple[Expr, ...]:
        return tuple(a.extent for a in self.axes)

    @property
    def dtypes(self) -> tuple[str, ...]:
        return tuple(b.dtype for b in self.body)

    @property
    def dtype(self) -> str:
        return self.dtypes[0]

    @property
    def input_tensors(self) -> list[Tensor]:
        """The tensors read, in order of first use."""
        known = _READ.get(self)
        if known is None:
            reads = (node.tensor for body in self.body for node in walk(body) if isinstance(node, Read))
            known = _READ[self] = tuple(dict.fromkeys(reads))
        return list(known)

    @property
    def reduction(self) -> Reduce | None:
        """The first Reduce of the body, if it has one."""
        first = self.body[0]
        return first if isinstance(first, Reduce) else None

    def output(self, index: int = 0) -> Tensor:
        """Output `index` as a tensor."""
        return Tensor(self, index)


_READ: WeakKeyDictionary[ComputeOp, tuple[Tensor, ...]] = WeakKeyDictionary()
"""What operations read, as long as these are there: it is asked for about eight times of each."""


@dataclass(frozen=True, slots=True, eq=False)
class ExternOp(Explained, Remembered):
    """Arrays made by a Python function from whole input arrays: `function(*inputs, *outputs)` writes the outputs.

    `inputs` are tensors in a user's program, buffers in a canonical one.
    """

    name: str
    inputs: tuple[Tensor | Buffer, ...]
    shapes: tuple[tuple[Expr, ...], ...]
    dtypes: tuple[str, ...]
    function: Callable[..., Any]
    tag: str = ""
    location: Location | None = None

    @property
    def axis(self) -> tuple[Axis, ...]:
        return ()

    @property
    def reduce_axis(self) -> tuple[Axis, ...]:
        return ()

    @property
    def num_outputs(self) -> int:
        return len(self.shapes)

    @property
    def shape(self) -> tuple[Expr, ...]:
        return self.shapes[0]

    @property
    def dtype(self) -> str:
        return self.dtypes[0]

    @property
    def input_tensors(self) -> list[Tensor]:
        return [t for t in self.inputs if isinstance(t, Tensor)]

    def output(self, index: int = 0) -> Tensor:
        """Output `index` as a tensor."""
        return Tensor(self, index)


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """An operation that runs inside a hybrid one: its axes there, by name, and the names of the arrays it makes."""

    op: ComputeOp
    loops: Mapping[str, str]
    arrays: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class HybridOp(Remembered):
    """Statements that run in order: `body` is loop IR over arrays (te.hybrid.script, te.scan, te.recurrence).

    Stores go to `outputs` and to arrays that `Allocate` makes inside; such an array is new in every iteration of the
    loops around it. The names of loops (int64) and of arrays are unique. Output k with `updates[k]` begins as that
    input and takes its place in memory; the body names the output wherever it reads or writes that array. Other inputs
    are read as `Read(Tensor)` in a user's program, and as loads of their buffers in a canonical one.

    `axes` are the loops that a user knows as axes of the operation, `members` the operations that became loops of it,
    and `time` is the time loop of a scan.
    """

    name: str
    outputs: tuple[Buffer, ...]
    body: Stmt
    updates: tuple[Tensor | Buffer | None, ...]
    tag: str = ""
    location: Location | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    axes: tuple[Axis, ...] = ()
    members: tuple[Member, ...] = ()
    time: Axis | None = None

    @property
    def axis(self) -> tuple[Axis, ...]:
        return self.axes

    @property
    def scan_axis(self) -> Axis:
        """The time loop of a scan."""
        if self.time is None:
            raise AttributeError(f"{self.name} is no scan: it has no scan_axis")
        return self.time

    @property
    def reduce_axis(self) -> tuple[Axis, ...]:
        return ()

    @property
    def num_outputs(self) -> int:
        return len(self.outputs)

    @property
    def shapes(self) -> tuple[tuple[Expr, ...], ...]:
        return tuple(b.shape for b in self.outputs)

    @property
    def shape(self) -> tuple[Expr, ...]:
        return self.outputs[0].shape

    @property
    def dtypes(self) -> tuple[str, ...]:
        return tuple(b.dtype for b in self.outputs)

    @property
    def dtype(self) -> str:
        return self.dtypes[0]

    @property
    def input_tensors(self) -> list[Tensor]:
        """The tensors read or updated, in order of first use."""
        reads = [node.tensor for expr in stmt_exprs(self.body) for node in walk(expr) if isinstance(node, Read)]
        return list(dict.fromkeys([t for t in self.updates if isinstance(t, Tensor)] + reads))

    def output(self, index: int = 0) -> Tensor:
        """Output `index` as a tensor."""
        return Tensor(self, index)


Operation: TypeAlias = PlaceholderOp | ComputeOp | ExternOp | HybridOp


@lru_cache(maxsize=4096)
def buffers(op: Operation) -> tuple[Buffer, ...]:
    """The buffers that a canonical operation writes (a placeholder: that it stands for)."""
    if isinstance(op, HybridOp):
        return op.outputs
    shapes = op.shapes if isinstance(op, ExternOp) else (op.shape,) * op.num_outputs
    names = (op.name,) if op.num_outputs == 1 else tuple(f"{op.name}.v{i}" for i in range(op.num_outputs))
    return tuple(Buffer(n, s, d) for n, s, d in zip(names, shapes, op.dtypes, strict=True))


@lru_cache(maxsize=4096)
def loads(op: Operation) -> tuple[Load, ...]:
    """The loads of a canonical compute operation, in order, duplicates included."""
    if not isinstance(op, ComputeOp):
        return ()
    return tuple(node for body in op.body for node in walk(body) if isinstance(node, Load))


def axes_at(load: Load) -> tuple[str, ...]:
    """The axis that each index of a load is, by name; "" for any other index."""
    return tuple(i.name if isinstance(i, Var) else "" for i in load.index)


def at_own_place(op: ComputeOp, load: Load) -> bool:
    """Whether an operation reads an array where it writes its own element."""
    return axes_at(load) == tuple(axis.name for axis in op.axes)


def constant(value: int) -> Expr:
    """An int32 literal for shapes and bounds."""
    return as_expr(value, "int32" if abs(value) < 2**31 else "int64")
