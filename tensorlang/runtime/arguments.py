"""The checks of a call: from what the user passed to arrays and sizes that a kernel can trust."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, NoReturn, TypeAlias

import numpy as np

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import ArgumentError, shown
from tensorlang.ir.affine import affine
from tensorlang.ir.expr import Buffer, Expr, Var, walk
from tensorlang.ir.overflow import MOST, SizeCheck, exact_value
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
    TypeError; `exact` tells sizes for which the arithmetic of the kernel would overflow.
    """

    name: str
    signature: Signature
    params: tuple[Buffer, ...]
    sizes: tuple[Var, ...]
    outputs: tuple[str, ...]
    convert: Callable[[Any], CheckedArray] = as_array
    exact: SizeCheck | None = None

    def __call__(self, args: Sequence[Any]) -> tuple[list[CheckedArray], list[int]]:
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
        self._check_exact(known)
        return [arrays[p.name] for p in self.params], [known.values[v.name] for v in self.sizes]

    def shapes_without(self, args: Sequence[Any], lacking: frozenset[str]) -> dict[str, tuple[int, ...]]:
        """The shapes of arguments that are left out, by name, from the others; ArgumentError names one at fault."""
        known, arrays, given = _Sizes(), dict[str, CheckedArray](), iter(args)
        for position, param in enumerate(self.signature):
            if isinstance(param, Var):
                self._explicit_size(known, position, param, next(given))
            elif param.name not in lacking:
                arrays[param.name] = self._array(position, param, next(given))
        self._bind_shapes(known, arrays)
        made = [param for param in self.signature if isinstance(param, Buffer) and param.name in lacking]
        return {buffer.name: evaluate_shape(buffer, known.values) for buffer in made}

    def writes_nothing(self, arrays: Sequence[CheckedArray]) -> bool:
        """Whether no output has an element, of arrays in the kernel's order."""
        return not any(a.nbytes for p, a in zip(self.params, arrays, strict=True) if p.name in self.outputs)

    def refuse_names(self, named: Iterable[str]) -> NoReturn:
        """Refuse arguments that are given by keyword."""
        order = ", ".join(p.name for p in self.signature)
        given = ", ".join(shown(name) for name in named)
        raise ArgumentError(f"{self.name} takes its arguments in order, not by name ({given}); pass ({order})")

    def _label(self, position: int) -> str:
        return f"{self.name}: argument {position + 1} ({self.signature[position].name})"

    def _refuse(self, position: int, wanted: str, got: str, advice: str = "") -> NoReturn:
        raise ArgumentError(f"{self._label(position)}: expected {wanted}, got {got}{f'; {advice}' if advice else ''}")

    def _explicit_size(self, known: _Sizes, position: int, var: Var, given: Any) -> None:
        try:
            value = int(operator.index(given))
        except Exception as error:
            got = f"{type(given).__name__} {shown(given)}"
            advice = "" if isinstance(error, TypeError) else f"its __index__ raised {type(error).__name__}"
            self._refuse(position, f"a whole number for size {var.name}", got, advice)
        if isinstance(given, bool | np.bool_):
            self._refuse(position, f"a whole number for size {var.name}", f"{type(given).__name__} {given}")
        if value < 0:
            self._refuse(position, f"a size {var.name} of at least 0", shown(value))
        if value > MOST:
            self._refuse(position, f"a size {var.name} that fits int64", shown(value))
        known.values[var.name] = value
        known.source[var.name] = self._label(position)

    def _array(self, position: int, buffer: Buffer, given: Any) -> CheckedArray:
        if not buffer.shape and buffer.name not in self.outputs and isinstance(given, int | float | np.generic):
            given = self._number(position, buffer, given)
        try:
            array = self.convert(given)
        except TypeError as error:
            raise ArgumentError(f"{self._label(position)}: {error}") from None
        words, wanted = _words(given), dtypes.info(buffer.dtype).numpy
        if not holds(array, wanted):
            convert = f"convert it with {words.cast.format(buffer.dtype)}"
            self._refuse(position, f"dtype {buffer.dtype}", str(array.dtype), convert)
        if array.ndim != len(buffer.shape):
            shape = ", ".join(map(str, buffer.shape))
            self._refuse(position, f"{len(buffer.shape)} dimensions [{shape}]", f"{array.ndim}: shape {array.shape}")
        flags = array.flags
        if not flags.c_contiguous:
            strides = f"strides {array.strides} for shape {array.shape}"
            self._refuse(position, "a C-contiguous array", strides, words.contiguous)
        if not flags.aligned:
            place = f"byte {array.start}" if isinstance(array, DeviceArray) else f"address {address(array):#x}"
            self._refuse(position, f"data aligned to {wanted.alignment} bytes", place, words.copy)
        if buffer.name in self.outputs and not flags.writeable:
            self._refuse(position, "a writeable array, for it is an output", "a read-only one", words.copy)
        return array

    def _number(self, position: int, buffer: Buffer, given: Any) -> np.ndarray[Any, Any]:
        """A number, for an input of shape (): a float may be rounded, an integer is to fit."""
        element, value = dtypes.info(buffer.dtype), given.item() if isinstance(given, np.generic) else given
        whole = isinstance(value, int) and isinstance(value, bool) is (element.kind == "bool")
        low, high = dtypes.limits(element.name)
        if not element.is_float and not (whole and low <= value <= high):
            self._refuse(position, f"a number that {element.name} holds", shown(given))
        return np.asarray(value).astype(element.numpy)

    def _bind_shapes(self, known: _Sizes, arrays: dict[str, CheckedArray]) -> None:
        """Bind sizes from dimensions that are a bare size, then check all others, solving for one size each."""
        later = []
        for position, param in enumerate(self.signature):
            if isinstance(param, Var) or param.name not in arrays:
                continue
            for axis, (extent, actual) in enumerate(zip(param.shape, arrays[param.name].shape, strict=True)):
                if isinstance(extent, Var):
                    self._bind(known, position, axis, extent.name, actual)
                else:
                    later.append((position, axis, extent, actual))
        self._solve_all(known, later)
        missing = dict.fromkeys([v.name for v in self.sizes if v.name not in known.values])
        missing |= dict.fromkeys(name for _, _, extent, _ in later for name in _unknown(extent, known))
        for position, axis, extent, actual in later:
            if not _unknown(extent, known):
                self._check_extent(known, position, axis, extent, actual, arrays)
        if missing:
            names = ", ".join(missing)
            raise ArgumentError(
                f"{self.name}: the shapes of the arguments do not determine {names}; build with {names} among the args"
            )

    def _solve_all(self, known: _Sizes, extents: Sequence[tuple[int, int, Expr, int]]) -> None:
        """Find sizes from extents with one unknown each, until there is none: a size found makes others known."""
        found = -1
        while found != len(known.values):
            found = len(known.values)
            for position, axis, extent, actual in extents:
                if len(_unknown(extent, known)) == 1:
                    self._solve(known, position, axis, extent, actual)

    def _bind(self, known: _Sizes, position: int, axis: int, name: str, actual: int) -> None:
        here = f"{self._label(position)} dimension {axis}"
        if known.values.setdefault(name, actual) != actual:
            raise ArgumentError(f"{here}: {name} is {actual}, but {known.values[name]} in {known.source[name]}")
        known.source.setdefault(name, here)

    def _check_extent(
        self,
        known: _Sizes,
        position: int,
        axis: int,
        extent: Expr,
        actual: int,
        arrays: dict[str, CheckedArray],
    ) -> None:
        wanted = _evaluate(extent, known.values)
        if wanted == actual:
            return
        sources = [f"{v} is {known.values[v]} from {known.source[v]}" for v in sorted(_names(extent))]
        why = f" ({'; '.join([str(extent), ', '.join(sources)])})" if sources else ""
        here = f"dimension {axis}"
        if not 0 <= wanted <= MOST:
            what = "less than 0" if wanted < 0 else "more than 64 bits hold"
            self._refuse(position, f"sizes that give {here} an extent", f"{wanted}{why}, {what}")
        shape = arrays[self.signature[position].name].shape
        fitting = ", ".join(str(wanted if d == axis else n) for d, n in enumerate(shape))
        self._refuse(position, f"{wanted}{why} in {here}", f"{actual}: shape {shape}", f"[{fitting}] would fit")

    def _check_exact(self, known: _Sizes) -> None:
        """Refuse sizes with which index arithmetic of the compiled code would wrap around."""
        fault = "" if self.exact is None else self.exact.fault(known.values)
        if fault:
            sizes = ", ".join(f"{n} is {v} from {known.source[n]}" for n, v in sorted(known.values.items()))
            raise ArgumentError(f"{self.name}: these sizes are too large: {fault} ({sizes}); pass smaller ones")

    def _solve(self, known: _Sizes, position: int, axis: int, extent: Expr, actual: int) -> None:
        """Find the one unknown size of an affine extent such as `2*n + 1`."""
        form = affine(extent)
        (name,) = _unknown(extent, known)
        if form is None or name not in form:
            return
        rest = sum(factor * known.values[v] for v, factor in form.items() if v and v != name) + form.get("", 0)
        value, remainder = divmod(actual - rest, form[name])
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


@dataclass(frozen=True, slots=True)
class _Words:
    """What to do with an array that does not fit, in the words of its library."""

    cast: str = ".astype({!r})"
    contiguous: str = "pass np.ascontiguousarray of it"
    copy: str = "copy it"


_LIBRARIES: Mapping[str, _Words] = {
    "torch": _Words(".to(torch.{})", "pass its .contiguous()", "pass its .clone()"),
    "cupy": _Words(contiguous="pass cupy.ascontiguousarray of it", copy="pass its .copy()"),
}


def _words(given: Any) -> _Words:
    return _LIBRARIES.get(type(given).__module__.partition(".")[0], _Words())


def evaluate_shape(buffer: Buffer, sizes: dict[str, int]) -> tuple[int, ...]:
    """The shape of a buffer for given sizes; an extent below 0 is 0, as loops over it run not at all."""
    return tuple(max(0, _evaluate(extent, sizes)) for extent in buffer.shape)


def _kind(param: Buffer | Var) -> str:
    return f"{param.name}: size" if isinstance(param, Var) else str(param)


def _names(expr: Expr) -> set[str]:
    return {node.name for node in walk(expr) if isinstance(node, Var)}


def _unknown(extent: Expr, known: _Sizes) -> list[str]:
    return sorted(_names(extent) - set(known.values))


def _evaluate(extent: Expr, sizes: Mapping[str, int]) -> int:
    """The value of a shape expression whose sizes are all known, computed without overflow."""
    value = exact_value(extent, sizes)
    if value is not None:
        return int(value)
    from tensorlang.ir.interpret import evaluate  # which few programs need here

    variables = {node.name: node for node in walk(extent) if isinstance(node, Var)}
    return int(evaluate(extent, {var: sizes[name] for name, var in variables.items()}))
