"""Convolutions over one, two or three axes, in groups, and their transposes: definitions over any number of axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorlang import dtypes, te
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, as_expr, binary, same
from tensorlang.ir.simplify import simplify
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import Tensor
from tensorlang.topi.checked import named
from tensorlang.topi.computed import computed
from tensorlang.topi.windows import Numbers, Padding, around, each, windows_over

_AXES = "WHD"


@dataclass(frozen=True, slots=True)
class _Form:
    """Where images, channels and pixels are in the data, and outputs, inputs and places in the weights."""

    rank: int
    last: bool  # channels behind pixels; then weights are HWIO, else OIHW

    def data(self, n: Expr, c: Expr, place: Sequence[Expr]) -> list[Expr]:
        return [n, *place, c] if self.last else [n, c, *place]

    def pixels(self, x: Tensor) -> tuple[Expr, ...]:
        return x.shape[1:-1] if self.last else x.shape[2:]

    def channels(self, x: Tensor) -> Expr:
        return x.shape[-1] if self.last else x.shape[1]

    def split(self, index: Sequence[Expr]) -> tuple[Expr, Expr, Sequence[Expr]]:
        """Image, channel and place of an index of the result."""
        return (index[0], index[-1], index[1:-1]) if self.last else (index[0], index[1], index[2:])


def convolved(
    operator: str,
    data: Tensor,
    weight: Tensor,
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
    groups: int,
    out_dtype: str | None,
    form: _Form,
) -> Tensor:
    """The convolution of data of a form with weights of that form; padding is a condition of the sum."""
    rank = form.rank
    if data.ndim != rank + 2 or weight.ndim != rank + 2 or groups < 1:
        raise DefinitionError(f"{operator} wants data and weights of {rank + 2} dimensions, got {data} and {weight}")
    outputs, inputs = (weight.shape[-1], weight.shape[-2]) if form.last else weight.shape[:2]
    kernel = weight.shape[:rank] if form.last else weight.shape[2:]
    known = [extent_of(n) for n in (*kernel, outputs)]
    sizes = [n for n in known if n is not None]
    if len(sizes) < rank + 1 or sizes[-1] % groups or not same(simplify(inputs * groups), form.channels(data)):
        raise DefinitionError(f"{operator}: {weight} does not fit {data} in {groups} groups")
    windows = windows_over(operator, sizes[:rank], stride, padding, dilation)
    counts = [w.count(n) for w, n in zip(windows, form.pixels(data), strict=True)]
    dtype = out_dtype or data.dtype
    wide = dtypes.at_least_float32(dtype)
    rc = te.reduce_axis((0, inputs), "rc")
    inner = [te.reduce_axis((0, k), f"r{_AXES[rank - 1 - d].lower()}") for d, k in enumerate(sizes[:rank])]
    per_group = sizes[-1] // groups

    def element(*index: Expr) -> Expr:
        n, f, place = form.split(index)
        c = rc if groups == 1 else binary("floordiv", f, per_group) * inputs + rc
        at = [w.at(p, r) for w, p, r in zip(windows, place, inner, strict=True)]
        rows = zip(windows, place, inner, form.pixels(data), counts, strict=True)
        tests = [test for w, p, r, extent, count in rows for test in w.inside(p, r, extent, count)]
        taken = weight(*inner, rc, f) if form.last else weight(f, rc, *inner)
        product = te.cast(data(*form.data(n, as_expr(c), at)), wide) * te.cast(taken, wide)
        return te.sum(product, axis=[rc, *inner], where=te.all(*tests) if len(tests) > 1 else next(iter(tests), None))

    total = computed(
        form.data(data.shape[0], outputs, counts), element, operator if wide == dtype else f"{operator}_sum"
    )
    return total if wide == dtype else computed(total.shape, lambda *i: te.cast(total(*i), dtype), operator)


def transposed(
    operator: str,
    data: Tensor,
    weight: Tensor,
    stride: Numbers,
    padding: Padding,
    out_dtype: str | None,
    output_padding: Numbers,
    groups: int,
    rank: int,
) -> Tensor:
    """The transpose of a convolution: each element of `data` is spread over a window of the result.

    Weights are (inputs, outputs of a group, window...). Where several windows meet, they are added up.
    """
    if data.ndim != rank + 2 or weight.ndim != rank + 2 or groups < 1:
        raise DefinitionError(f"{operator} wants data and weights of {rank + 2} dimensions, got {data} and {weight}")
    sizes, inputs = [extent_of(n) for n in weight.shape[2:]], extent_of(weight.shape[0])
    kernel = [n for n in sizes if n is not None]
    if len(kernel) < rank or inputs is None or inputs % groups or not same(weight.shape[0], data.shape[1]):
        raise DefinitionError(f"{operator}: {weight} does not fit {data} in {groups} groups")
    steps = each(f"{operator}: stride", stride, rank)
    more = each(f"{operator}: output_padding", output_padding, rank, least=0)
    before, after = around(f"{operator}: padding", padding, [k - 1 for k in kernel])
    if any(m >= s for m, s in zip(more, steps, strict=True)):
        raise DefinitionError(f"{operator}: output_padding {more} is less than the stride, {steps}")
    spread = zip(data.shape[2:], steps, kernel, before, after, more, strict=True)
    counts = [simplify((n - 1) * s + k - low - high + m) for n, s, k, low, high, m in spread]
    dtype = out_dtype or data.dtype
    wide = dtypes.at_least_float32(dtype)
    rc = te.reduce_axis((0, inputs // groups), "rc")
    inner = [te.reduce_axis((0, k), f"r{_AXES[rank - 1 - d].lower()}") for d, k in enumerate(kernel)]
    per_group = weight.shape[1]

    def element(n: Expr, f: Expr, *place: Expr) -> Expr:
        group = binary("floordiv", f, per_group) if groups > 1 else as_expr(0)
        c, own = group * (inputs // groups) + rc, f - group * per_group
        moved = [p + low - r for p, low, r in zip(place, before, inner, strict=True)]
        at = [binary("floordiv", m, s) for m, s in zip(moved, steps, strict=True)]
        tests = [binary("eq", binary("floormod", m, s), 0) for m, s in zip(moved, steps, strict=True) if s > 1]
        for a, extent in zip(at, data.shape[2:], strict=True):
            tests += [binary("ge", a, 0), binary("lt", a, extent)]
        product = te.cast(data(n, c, *at), wide) * te.cast(weight(c, own, *inner), wide)
        return te.sum(product, axis=[rc, *inner], where=te.all(*tests))

    names = ["n", "f", *[_AXES[rank - 1 - d].lower() for d in range(rank)]]
    shape = [data.shape[0], simplify(per_group * groups), *counts]
    total = te.compute(shape, element, name=operator if wide == dtype else f"{operator}_sum", varargs_names=names[2:])
    assert isinstance(total, Tensor)
    return total if wide == dtype else computed(total.shape, lambda *i: te.cast(total(*i), dtype), operator)


def _direct(name: str, rank: int, last: bool, doc: str) -> Callable[..., Tensor]:
    """A convolution over so many axes, in groups or in one."""

    def operator(
        data: Tensor,
        kernel: Tensor,
        strides: Numbers = 1,
        padding: Padding = "VALID",
        dilation: Numbers = 1,
        groups: int = 1,
        out_dtype: str | None = None,
    ) -> Tensor:
        form = _Form(rank, last)
        return convolved(name, data, kernel, strides, padding, dilation, groups, out_dtype, form)

    return named(name, doc, operator)


def _spread(name: str, rank: int, doc: str) -> Callable[..., Tensor]:
    """A transposed convolution over so many axes."""

    def operator(
        data: Tensor,
        kernel: Tensor,
        stride: Numbers = 1,
        padding: Padding = "VALID",
        out_dtype: str | None = None,
        output_padding: Numbers = 0,
        groups: int = 1,
    ) -> Tensor:
        return transposed(name, data, kernel, stride, padding, out_dtype, output_padding, groups, rank)

    return named(name, doc, operator)


_GROUPED = "channels may be in groups; half precision is added up in float32."
conv1d_ncw = _direct("conv1d_ncw", 1, False, f"Return NCW data convolved with OIW weights; {_GROUPED}")
conv1d_nwc = _direct("conv1d_nwc", 1, True, f"Return NWC data convolved with WIO weights; {_GROUPED}")
conv3d_ncdhw = _direct("conv3d_ncdhw", 3, False, f"Return NCDHW data convolved with OIDHW weights; {_GROUPED}")
conv3d_ndhwc = _direct("conv3d_ndhwc", 3, True, f"Return NDHWC data convolved with DHWIO weights; {_GROUPED}")
group_conv2d_nhwc = _direct("group_conv2d_nhwc", 2, True, f"Return NHWC data convolved with HWIO weights; {_GROUPED}")
_WINDOWS = "adding up windows that meet: the gradient of a convolution; `output_padding` more elements at the end."
conv1d_transpose_ncw = _spread("conv1d_transpose_ncw", 1, f"Return NCW data spread by IOW weights, {_WINDOWS}")
conv2d_transpose_nchw = _spread("conv2d_transpose_nchw", 2, f"Return NCHW data spread by IOHW weights, {_WINDOWS}")
conv3d_transpose_ncdhw = _spread("conv3d_transpose_ncdhw", 3, f"Return NCDHW data spread by IODHW weights, {_WINDOWS}")
