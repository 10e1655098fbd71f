"""The checks of a call: from what the user passed to arrays and sizes that a kernel can trust."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

from tensorlang import dtypes
from tensorlang.errors import ArgumentError
from tensorlang.ir.affine import affine
from tensorlang.ir.expr import Buffer, Const, Expr, Var, walk
from tensorlang.ir.interpret import evaluate
from tensorlang.runtime.arrays import address, as_array
from tensorlang.runtime.device_arrays import CheckedArray, DeviceArray, holds, share_memory

Signature: TypeAlias = tuple[Buffer | Var, ...]


@dataclass(slots=True)
class _Sizes:
    """Size variables as they become known, and the argument that each came from."""

    values: dict[str, int] = field(default_factory=dict)
    source: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ArgumentCheck:
    """Checks the arguments of a call against a signature, and puts them in the kernel's order.

    `signature`: what the caller passes, arrays and explicit sizes; `params`, `sizes`: what the kernel takes;
    `outputs`: names of the buffers that are written; `convert` makes an array of what the caller passes, or raises
    TypeError.
    """

    name: str
    signature: Signature
    params: tuple[Buffer, ...]
    sizes: tuple[Var, ...]
    outputs: tuple[str, ...]
    convert: Callable[[Any], CheckedArray] = as_array

    def __call__(self, args: Sequence[Any]) -> tuple[list[Any], list[int]]:
        """Return arrays and sizes in the kernel's order; ArgumentError names the argument at fault."""
        if len(args) != len(self.signature):
            wanted = ", ".join(_kind(p) for p in self.signature)
            raise ArgumentError(f"{self.name} takes {len(self.signature)} arguments ({wanted}), got {len(args)}")
        known = _Sizes()
        arrays: dict[str, CheckedArray] = {}
        for position, (param, given) in enumerate(zip(self.signature, args, strict=True)):
            if isinstance(param, Var):
                self._explicit_size(known, position, param, given)
            else:
                arrays[param.name] = self._array(position, param, given)
        self._bind_shapes(known, arrays)
        self._check_overlap(arrays)
        missing = [v.name for v in self.sizes if v.name not in known.values]
        if missing:
            raise ArgumentError(f"{self.name}: the shapes of the arguments do not determine {', '.join(missing)}")
        return [arrays[p.name] for p in self.params], [known.values[v.name] for v in self.sizes]

    def _label(self, position: int) -> str:
        return f"{self.name}: argument {position + 1} ({self.signature[position].name})"

    def _refuse(self, position: int, wanted: str, got: str, advice: str = "") -> NoReturn:
        raise ArgumentError(f"{self._label(position)}: expected {wanted}, got {got}{f'; {advice}' if advice else ''}")

    def _explicit_size(self, known: _Sizes, position: int, var: Var, given: Any) -> None:
        try:
            value = operator.index(given)
        except TypeError:
            self._refuse(position, f"a whole number for size {var.name}", f"{type(given).__name__} {given!r}")
        if value < 0:
            self._refuse(position, f"a size {var.name} of at least 0", str(value))
        if value >= 2**63:
            self._refuse(position, f"a size {var.name} that fits int64", str(value))
        known.values[var.name] = value
        known.source[var.name] = self._label(position)

    def _array(self, position: int, buffer: Buffer, given: Any) -> CheckedArray:
        try:
            array = self.convert(given)
        except TypeError as error:
            raise ArgumentError(f"{self._label(position)}: {error}") from None
        wanted = dtypes.info(buffer.dtype).numpy
        if not holds(array, wanted):
            self._refuse(
                position, f"dtype {buffer.dtype}", str(array.dtype), f"convert it with .astype({buffer.dtype!r})"
            )
        if array.ndim != len(buffer.shape):
            shape = ", ".join(map(str, buffer.shape))
            self._refuse(position, f"{len(buffer.shape)} dimensions [{shape}]", f"{array.ndim}: shape {array.shape}")
        flags = array.flags
        if not flags.c_contiguous:
            strides = f"strides {array.strides} for shape {array.shape}"
            self._refuse(position, "a C-contiguous array", strides, "pass np.ascontiguousarray of it")
        if not flags.aligned:
            place = f"byte {array.start}" if isinstance(array, DeviceArray) else f"address {address(array):#x}"
            self._refuse(position, f"data aligned to {wanted.alignment} bytes", place, "copy it")
        if buffer.name in self.outputs and not flags.writeable:
            self._refuse(position, "a writeable array, for it is an output", "a read-only one", "copy it")
        return array

    def _bind_shapes(self, known: _Sizes, arrays: dict[str, CheckedArray]) -> None:
        """Bind sizes from dimensions that are a bare size, then check all others, solving for one size each."""
        later = []
        for position, param in enumerate(self.signature):
            if isinstance(param, Var):
                continue
            for axis, (extent, actual) in enumerate(zip(param.shape, arrays[param.name].shape, strict=True)):
                if isinstance(extent, Const):
                    self._check_extent(position, axis, int(extent.value), actual, arrays)
                elif isinstance(extent, Var):
                    self._bind(known, position, axis, extent.name, actual)
                else:
                    later.append((position, axis, extent, actual))
        for position, axis, extent, actual in later:
            unknown = _unknown(extent, known)
            if unknown:
                self._solve(known, position, axis, extent, actual)
            else:
                self._check_extent(position, axis, _evaluate(extent, known), actual, arrays, extent, known)

    def _bind(self, known: _Sizes, position: int, axis: int, name: str, actual: int) -> None:
        here = f"{self._label(position)} dimension {axis}"
        if known.values.setdefault(name, actual) != actual:
            raise ArgumentError(f"{here}: {name} is {actual}, but {known.values[name]} in {known.source[name]}")
        known.source.setdefault(name, here)

    def _check_extent(
        self,
        position: int,
        axis: int,
        wanted: int,
        actual: int,
        arrays: dict[str, CheckedArray],
        extent: Expr | None = None,
        known: _Sizes | None = None,
    ) -> None:
        if wanted == actual:
            return
        shape = arrays[self.signature[position].name].shape
        why = ""
        if extent is not None and known is not None:
            sources = [f"{v} is {known.values[v]} from {known.source[v]}" for v in sorted(_names(extent))]
            why = f" ({extent}; {', '.join(sources)})"
        self._refuse(position, f"{wanted}{why} in dimension {axis}", f"{actual}: shape {shape}")

    def _solve(self, known: _Sizes, position: int, axis: int, extent: Expr, actual: int) -> None:
        """Find the one unknown size of an affine extent such as `2*n + 1`."""
        form = affine(extent)
        unknown = _unknown(extent, known)
        if form is None or len(unknown) != 1:
            return
        name = unknown[0]
        rest = sum(factor * known.values[v] for v, factor in form.items() if v and v != name) + form.get("", 0)
        value, remainder = divmod(actual - rest, form[name]) if form.get(name) else (0, 1)
        if remainder or value < 0:
            self._refuse(position, f"{extent} in dimension {axis} for a whole {name} of at least 0", str(actual))
        self._bind(known, position, axis, name, value)

    def _check_overlap(self, arrays: dict[str, CheckedArray]) -> None:
        """Written arrays may overlap no other: the compiled code relies on it."""
        for output in self.outputs:
            for name, array in arrays.items():
                if name != output and share_memory(arrays[output], array):
                    raise ArgumentError(
                        f"{self.name}: output {output} overlaps {name} in memory; pass a separate array, or a copy"
                    )


def evaluate_shape(buffer: Buffer, sizes: dict[str, int]) -> tuple[int, ...]:
    """The shape of a buffer for given sizes; an extent below 0 is 0, as loops over it run not at all."""
    known = _Sizes(sizes)
    return tuple(max(0, _evaluate(extent, known)) for extent in buffer.shape)


def _kind(param: Buffer | Var) -> str:
    return f"{param.name}: size" if isinstance(param, Var) else str(param)


def _names(expr: Expr) -> set[str]:
    return {node.name for node in walk(expr) if isinstance(node, Var)}


def _unknown(extent: Expr, known: _Sizes) -> list[str]:
    return sorted(_names(extent) - set(known.values))


def _evaluate(extent: Expr, known: _Sizes) -> int:
    """The value of a shape expression whose sizes are all known."""
    variables = {node.name: node for node in walk(extent) if isinstance(node, Var)}
    return int(evaluate(extent, {var: known.values[name] for name, var in variables.items()}))
