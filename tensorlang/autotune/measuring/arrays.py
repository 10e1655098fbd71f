"""Inputs and reference outputs of a task, and whether what a kernel gave is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang.dataclass import dataclass

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Arrays:
    """Seeded inputs, the outputs that they must give, and how far from them is still right.

    `in_place`: for each output the number of the input that it overwrites, or -1; empty when none does. `overwritten`:
    all inputs that a kernel changes, also those whose new values are no output.
    """

    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    rtol: float
    atol: float
    in_place: tuple[int, ...] = ()
    overwritten: tuple[int, ...] = ()

    def fresh(self) -> tuple[list[Array], list[Array]]:
        """New arguments of a kernel, and its outputs among them."""
        places = self.in_place or (-1,) * len(self.outputs)
        inputs = [a.copy() if n in places or n in self.overwritten else a for n, a in enumerate(self.inputs)]
        outputs = [inputs[n] if n >= 0 else np.empty_like(o) for n, o in zip(places, self.outputs, strict=True)]
        return [*inputs, *(o for n, o in zip(places, outputs, strict=True) if n < 0)], outputs


class Arguments:
    """Arguments of kernels that run one after the other, and the outputs among them.

    Before each run `renew` makes an input that is overwritten what it was, and other outputs wrong, but for zeros: an
    element that a program never writes is one.
    """

    def __init__(self, arrays: Arrays) -> None:
        self.args, self.outputs = arrays.fresh()
        places = arrays.in_place or (-1,) * len(arrays.outputs)
        self._before = [
            arrays.inputs[place] if place >= 0 else _wrong(wanted)
            for place, wanted in zip(places, arrays.outputs, strict=True)
        ]
        self._inputs = [(self.args[n], arrays.inputs[n]) for n in arrays.overwritten if n not in places]

    def renew(self) -> None:
        """Make them ready for a run."""
        for output, before in zip(self.outputs, self._before, strict=True):
            np.copyto(output, before)
        for changed, original in self._inputs:
            np.copyto(changed, original)


def _wrong(wanted: Array) -> Array:
    """Zeros where they are wanted, and what is wrong elsewhere."""
    other = np.invert(wanted) if wanted.dtype.kind in "biu" else np.full_like(wanted, np.nan)
    return np.where(wanted == 0, np.zeros_like(wanted), other)


def difference(arrays: Arrays, outputs: list[Array]) -> str:
    """The worst wrong element as text; empty when all are within tolerance."""
    for n, (got, wanted) in enumerate(zip(outputs, arrays.outputs, strict=True)):
        if _plainly_equal(got, wanted, arrays):
            continue
        exact = wanted.dtype.kind in "biu"
        x, y = (got, wanted) if exact else (got.astype(np.float64), wanted.astype(np.float64))
        good = x == y if exact else np.isclose(x, y, arrays.rtol, arrays.atol, equal_nan=True)
        if not good.all():
            index = np.unravel_index(int(np.argmin(good)), good.shape)
            place = ", ".join(map(str, map(int, index)))
            count = f"{good.size - int(good.sum())} of {good.size}"
            return f"output {n} differs at {count} elements; at [{place}] {got[index]} instead of {wanted[index]}"
    return ""


def _plainly_equal(got: Array, wanted: Array, arrays: Arrays) -> bool:
    """Whether all floats are finite and well within tolerance, without a detour over float64: twelve times as fast."""
    if wanted.ndim == 0 or wanted.dtype not in (np.float32, np.float64):
        return False
    with np.errstate(all="ignore"):
        apart = np.subtract(got, wanted)
        np.abs(apart, out=apart)
        allowed = np.abs(wanted)
        allowed *= 0.999 * arrays.rtol  # the rest is for the rounding of this very test
        allowed += 0.999 * arrays.atol
        return bool((apart <= allowed).all() and np.isfinite(allowed).all())
