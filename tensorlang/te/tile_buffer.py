"""The arrays that an intrinsic works on, as its body names them: shape, strides, alignment, pointers and vectors."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Buffer, Const, Expr, Load, Var, as_expr, cast
from tensorlang.ir.fragment import Fragment
from tensorlang.ir.machine import Pointer, VectorLoad, lanes, vector_dtype
from tensorlang.ir.stmt import INDEX, MachineParam, Stmt
from tensorlang.location import caller
from tensorlang.te.array_buffer import array_buffer
from tensorlang.te.check import check_tensor_name
from tensorlang.te.ir_builder import checked_store, element_index

_ACCESS = {"r": "r", "w": "w", "rw": "rw", "wr": "rw", 1: "r", 2: "w", 3: "rw"}


@dataclass(frozen=True, slots=True)
class TileBuffer:
    """A tile in memory: `strides` are elements between neighbours of each dimension, numbers or variables.

    A variable stride takes any value; without strides the rows follow each other without gaps. The first element lies
    at a multiple of `offset_factor` elements of its array and of `data_alignment` bytes, as far as these are given.
    A tile of scope `warp` lies in the registers of the lanes of a warp, as its `fragment` says. One that is `swizzled`
    has the order of chunks that the primitive of this name gives; one in `panels` takes all rows of its array.
    """

    shape: tuple[int, ...]
    dtype: str
    name: str
    strides: tuple[Expr, ...]
    offset_factor: int = 1
    data_alignment: int = 0
    scope: str = ""
    fragment: Fragment | None = None
    swizzled: bool = False
    panels: bool = False

    @property
    def buffer(self) -> Buffer:
        """The array as loop IR names it."""
        return Buffer(self.name, tuple(Const(n, INDEX) for n in self.shape), self.dtype)

    @property
    def param(self) -> MachineParam:
        """The array as machine code takes it."""
        return MachineParam(self.buffer, self.strides, self.fragment)

    @property
    def elem_offset(self) -> Expr:
        """Where the tile begins, in elements from `data`: at its pointer."""
        return as_expr(0)

    @property
    def data(self) -> Expr:
        """The address of the first element."""
        return self.access_ptr("rw")

    def access_ptr(
        self, access_mask: str | int, ptr_type: str = "handle", content_lanes: int = 1, offset: Any = 0
    ) -> Expr:
        """The address of the element `offset` places after the first; `access_mask` says r, w or rw."""
        if access_mask not in _ACCESS or content_lanes != 1 or ptr_type != "handle":
            raise DefinitionError(
                f"access_ptr of {self.name} takes 'r', 'w' or 'rw' (a pointer to single elements), got "
                f"{access_mask!r}, ptr_type={ptr_type!r}, content_lanes={content_lanes}",
                caller(),
            )
        start = as_expr(offset)
        if not (isinstance(start, Const) and start.value == 0) and self._run() == 1:
            text = f"the neighbours in {self.name} are not side by side in memory; access_ptr takes no offset there"
            raise DefinitionError(text, caller())
        index = [as_expr(0)] * len(self.shape)
        if index:
            index[-1] = start
        return Pointer(self.buffer, element_index(self.buffer, tuple(index)), _ACCESS[access_mask])

    def vload(self, begin: Any, dtype: str | None = None) -> Expr:
        """Read an element, or with a vector dtype (`int8x64`) that many side by side in memory."""
        element, count = vector_dtype(dtype or self.dtype)
        if element != self.dtype:
            text = f"{self.name} holds {self.dtype}, asked for {dtype}; load that and use tir.reinterpret"
            raise DefinitionError(text, caller())
        index = element_index(self.buffer, begin)
        if not count:
            return Load(self.buffer, index)
        self._check_run(index, count)
        return VectorLoad(self.buffer, index, count)

    def vstore(self, begin: Any, value: Any) -> Stmt:
        """Write an element, or the lanes of a vector side by side."""
        index = element_index(self.buffer, begin)
        store = checked_store(self.buffer, index, value)
        if lanes(store.value):
            self._check_run(index, lanes(store.value))
        return store

    def __getitem__(self, index: Any) -> Load:
        return Load(self.buffer, element_index(self.buffer, index))

    def _run(self) -> int:
        """How many elements lie side by side: those of the trailing dimensions without gaps."""
        count = 1
        for extent, stride in zip(reversed(self.shape), reversed(self.strides)):
            if not (extent == 1 or (isinstance(stride, Const) and stride.value == count)):
                break
            count *= extent
        return count

    def _check_run(self, index: tuple[Expr, ...], count: int) -> None:
        """The lanes of a vector lie side by side, and inside the tile."""
        first, scale = 0, 1
        for part, extent in zip(reversed(index), reversed(self.shape)):
            if scale >= self._run() or not isinstance(part, Const):
                break
            first += int(part.value) * scale
            scale *= extent
        if first + count > self._run():
            raise DefinitionError(
                f"{count} lanes from [{', '.join(map(str, index))}] of {self.name} are not side by side in memory: "
                f"its shape is {list(self.shape)} with strides [{', '.join(map(str, self.strides))}]",
                caller(),
            )


def decl_buffer(
    shape: Any,
    dtype: Any = None,
    name: str = "buffer",
    data: None = None,
    strides: Sequence[Any] | None = None,
    elem_offset: Any = None,
    scope: str = "",
    data_alignment: int = -1,
    offset_factor: int = 0,
    buffer_type: str = "",
    fragment: Fragment | None = None,
    swizzled: bool = False,
    panels: bool = False,
) -> Any:
    """Declare how a tile that an intrinsic works on lies in memory; see TileBuffer.

    Of a symbolic shape it is the array of an argument, for `binds=` and `te.extern`; see ArrayBuffer.

    `data` and `elem_offset` are accepted for classic te's sake: the tile's pointer is its first element. A tile of
    scope `warp` has a `fragment`, and is a whole number of them. `swizzled`, in `panels`:
    as the primitive of this name has it.

        >>> from tensorlang import te
        >>> te.decl_buffer((4, 16), "float32", name="tile", offset_factor=16).shape
        (4, 16)
    """
    extents = shape if isinstance(shape, tuple | list) else (shape,)
    sizes = tuple(as_expr(e) for e in extents)
    if any(not isinstance(s, Const) for s in sizes) and all(dtypes.info(s.dtype).is_integer for s in sizes):
        return array_buffer(sizes, dtype, check_tensor_name(name), strides)
    if not all(isinstance(s, Const) and dtypes.info(s.dtype).is_integer for s in sizes):
        text = f"the shape of {name} must be numbers, got {tuple(extents)}: an intrinsic has one size"
        raise DefinitionError(text, caller())
    if buffer_type:
        raise DefinitionError(f"{name}: tiles have plain strides, buffer_type {buffer_type!r} is unknown", caller())
    fixed = tuple(int(s.value) for s in sizes if isinstance(s, Const))
    compact = [as_expr(prod(fixed[k + 1 :])) for k in range(len(fixed))]
    given = [as_expr(s) for s in strides] if strides else compact
    if len(given) != len(fixed) or not all(_is_stride(s) for s in given):
        text = f"{name} needs one stride (a number or a te.var) per dimension, got {strides!r}"
        raise DefinitionError(text, caller())
    kept = tuple(s if isinstance(s, Var) else cast(s, INDEX) for s in given)
    element, checked = dtypes.canonical(dtype or "float32"), check_tensor_name(name)
    if (scope == "warp") != (fragment is not None):
        text = f"{name} has the scope {scope!r} and the fragment {fragment}: a tile in registers of a warp has both"
        raise DefinitionError(text, caller())
    if fragment is not None and (len(fixed) != 2 or fixed[0] % fragment.rows or fixed[1] % fragment.columns):
        raise DefinitionError(f"{name} of shape {fixed} is no whole number of fragments ({fragment})", caller())
    aligned = max(1, offset_factor), max(0, data_alignment)
    return TileBuffer(fixed, element, checked, kept, *aligned, scope, fragment, swizzled, panels)


def _is_stride(stride: Expr) -> bool:
    return isinstance(stride, Var) or (isinstance(stride, Const) and dtypes.info(stride.dtype).is_integer)
