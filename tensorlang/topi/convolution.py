"""Convolutions over one, two or three axes, in groups, and their transposes: definitions over any number of axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tensorlang import te
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, as_expr, binary, same
from tensorlang.ir.simplify import simplify
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import Tensor
from tensorlang.topi.checked import checked, named
from tensorlang.topi.computed import computed, rounded_once
from tensorlang.topi.conv2d import conv2d
from tensorlang.topi.windows import Numbers, Padding, Window, around, each, windows_over

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
    return _summed(operator, data, weight, windows, as_expr(sizes[-1]), groups, out_dtype, form)


def _summed(
    operator: str,
    data: Tensor,
    weight: Tensor,
    windows: Sequence[Window],
    outputs: Expr,
    groups: int,
    out_dtype: str | None,
    form: _Form,
) -> Tensor:
    """The sums over windows, which may begin and end before the data or behind them."""
    inputs = weight.shape[-2] if form.last else weight.shape[1]
    counts = [w.count(n) for w, n in zip(windows, form.pixels(data), strict=True)]
    rc = te.reduce_axis((0, inputs), "rc")
    inner = [te.reduce_axis((0, w.size), f"r{_AXES[form.rank - 1 - d].lower()}") for d, w in enumerate(windows)]
    per_group = simplify(binary("floordiv", outputs, groups))

    def element(index: Sequence[Expr], dtype: str) -> Expr:
        n, f, place = form.split(index)
        c = rc if groups == 1 else binary("floordiv", f, per_group) * inputs + rc
        at = [w.at(p, r) for w, p, r in zip(windows, place, inner, strict=True)]
        rows = zip(windows, place, inner, form.pixels(data), counts, strict=True)
        tests = [test for w, p, r, extent, count in rows for test in w.inside(p, r, extent, count)]
        taken = weight(*inner, rc, f) if form.last else weight(f, rc, *inner)
        product = te.cast(data(*form.data(n, as_expr(c), at)), dtype) * te.cast(taken, dtype)
        return te.sum(product, axis=[rc, *inner], where=te.all(*tests) if len(tests) > 1 else next(iter(tests), None))

    shape = form.data(data.shape[0], outputs, counts)
    return rounded_once(
        operator,
        out_dtype or data.dtype,
        lambda name, dtype: computed(shape, lambda *index: element(index, dtype), name),
    )


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
    over = [Phases(*numbers) for numbers in zip(kernel, steps, before, after, more, strict=True)]
    check_results(operator, data, over)
    return spread(operator, data, weight, over, groups, out_dtype)


def spread(
    operator: str, data: Tensor, weight: Tensor, over: Sequence[Phases], groups: int = 1, out_dtype: str | None = None
) -> Tensor:
    """Data [n, c, place...] spread by weights [c, outputs of a group, window...] along axes, whose windows may meet.

    A convolution whose outputs are those of every phase, and its results side by side.
    """
    outputs = simplify(weight.shape[1] * groups)
    count, form = prod(w.stride for w in over), _Form(len(over), last=False)
    laid = _by_phases(f"{operator}_weight", weight, over, groups)
    name, windows = operator if count == 1 else f"{operator}_phases", [w.window for w in over]
    phases = _summed(name, data, laid, windows, simplify(outputs * count), groups, out_dtype, form)
    if count == 1:
        return phases

    def element(n: Expr, f: Expr, *place: Expr) -> Expr:
        moved, number = [p + w.before for p, w in zip(place, over, strict=True)], f
        for at, w in zip(moved, over, strict=True):
            number = number * w.stride + binary("floormod", at, w.stride)
        return phases(
            n, number, *(binary("floordiv", at, w.stride) - w.first for at, w in zip(moved, over, strict=True))
        )

    counts = [w.count(extent) for w, extent in zip(over, data.shape[2:], strict=True)]
    return computed([data.shape[0], outputs, *counts], element, operator)


@dataclass(frozen=True, slots=True)
class Phases:
    """An axis along which data are spread, as windows: results `stride` apart are sums with the same weights.

    So each phase has weights of its own, of neighbouring data. Results are cut off `before` and `after`, `more` added.
    """

    kernel: int
    stride: int
    before: int
    after: int
    more: int

    @property
    def taps(self) -> int:
        """The weights of a phase, at most."""
        return -(-self.kernel // self.stride)

    @property
    def first(self) -> int:
        """The window that the first result belongs to."""
        return self.before // self.stride

    @property
    def window(self) -> Window:
        """The windows over data."""
        behind = (self.kernel - self.after + self.more - 1) // self.stride
        return Window(self.taps, before=self.taps - 1 - self.first, after=behind)

    def count(self, extent: Expr) -> Expr:
        """How many results there are."""
        return simplify((extent - 1) * self.stride + (self.kernel - self.before - self.after + self.more))

    def weight(self, phase: Expr, tap: Expr) -> Expr:
        """The place of a weight, beyond the last one where the phase has none; data come first to last."""
        return phase + (self.taps - 1 - tap) * self.stride


def check_results(operator: str, data: Tensor, over: Sequence[Phases]) -> None:
    """DefinitionError where all results along an axis of data that has elements are cut off."""
    known = [(extent_of(n), extent_of(w.count(n))) for n, w in zip(data.shape[2:], over, strict=True)]
    if any(extent and count is not None and count < 1 for extent, count in known):
        sizes = ", ".join(str(count) for _, count in known)
        raise DefinitionError(
            f"{operator}: the padding leaves no result of {data}, ({sizes}) along its axes; cut off less"
        )


def _by_phases(name: str, weight: Tensor, over: Sequence[Phases], groups: int) -> Tensor:
    """Weights (inputs, outputs of a group, window...) as those of a convolution whose outputs have phases."""
    per_group, inputs = weight.shape[1], simplify(binary("floordiv", weight.shape[0], groups))
    outputs = simplify(per_group * (groups * prod(w.stride for w in over)))

    def element(f: Expr, c: Expr, *taps: Expr) -> Expr:
        number, places = f, list[Expr]()
        for w, tap in reversed([*zip(over, taps, strict=True)]):
            places.insert(0, w.weight(binary("floormod", number, w.stride), tap))
            number = binary("floordiv", number, w.stride)
        group = binary("floordiv", number, per_group) if groups > 1 else as_expr(0)
        value = weight(group * inputs + c, number - group * per_group, *places)
        missing = [binary("lt", at, w.kernel) for at, w in zip(places, over, strict=True) if w.kernel % w.stride]
        return te.if_then_else(te.all(*missing), value, te.const(0, weight.dtype)) if missing else value

    return computed([outputs, inputs, *(as_expr(w.taps) for w in over)], element, name)


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


def _line(name: str, last: bool, doc: str) -> Callable[..., Tensor]:
    """A convolution over one axis, whose groups come last."""

    def operator(
        data: Tensor,
        kernel: Tensor,
        strides: Numbers = 1,
        padding: Padding = "VALID",
        dilation: Numbers = 1,
        out_dtype: str | None = None,
        groups: int = 1,
    ) -> Tensor:
        return convolved(name, data, kernel, strides, padding, dilation, groups, out_dtype, _Form(1, last))

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
conv1d_ncw = _line("conv1d_ncw", False, f"Return NCW data convolved with OIW weights; {_GROUPED}")
conv1d_nwc = _line("conv1d_nwc", True, f"Return NWC data convolved with WIO weights; {_GROUPED}")
group_conv1d_ncw = _direct("group_conv1d_ncw", 1, False, "Return `conv1d_ncw` in groups, whose number comes earlier.")
group_conv1d_nwc = _direct("group_conv1d_nwc", 1, True, "Return `conv1d_nwc` in groups, whose number comes earlier.")
conv3d_ncdhw = _direct("conv3d_ncdhw", 3, False, f"Return NCDHW data convolved with OIDHW weights; {_GROUPED}")
conv3d_ndhwc = _direct("conv3d_ndhwc", 3, True, f"Return NDHWC data convolved with DHWIO weights; {_GROUPED}")
group_conv2d_nhwc = _direct("group_conv2d_nhwc", 2, True, f"Return NHWC data convolved with HWIO weights; {_GROUPED}")
_WINDOWS = "adding up windows that meet: the gradient of a convolution; `output_padding` more elements at the end."
conv1d_transpose_ncw = _spread("conv1d_transpose_ncw", 1, f"Return NCW data spread by IOW weights, {_WINDOWS}")
conv2d_transpose_nchw = _spread("conv2d_transpose_nchw", 2, f"Return NCHW data spread by IOHW weights, {_WINDOWS}")
conv3d_transpose_ncdhw = _spread("conv3d_transpose_ncdhw", 3, f"Return NCDHW data spread by IODHW weights, {_WINDOWS}")
group_conv2d_transpose_nchw = _spread(
    "group_conv2d_transpose_nchw", 2, "Return `conv2d_transpose_nchw` in groups of channels."
)
_BY_LAYOUT: dict[str, Callable[..., Tensor]] = {
    "NCW": group_conv1d_ncw,
    "NWC": group_conv1d_nwc,
    "NCDHW": conv3d_ncdhw,
    "NDHWC": conv3d_ndhwc,
}
_KERNELS = {"NCW": "OIW", "NWC": "WIO", "NCDHW": "OIDHW", "NDHWC": "DHWIO"}


@checked
def conv(
    inp: Tensor,
    filt: Tensor,
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
    groups: int,
    data_layout: str,
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> Tensor:
    """Return the convolution over one, two or three axes, in groups, that a layout names: NCW, NHWC, NCDHW, ...

    DefinitionError for other layouts, and for weights that do not fit.

        >>> from tensorlang import te, topi
        >>> x, w = te.placeholder((1, 4, 9)), te.placeholder((6, 2, 3))
        >>> topi.nn.conv(x, w, 2, 1, 1, 2, "NCW").shape
        (1, 6, 5)
    """
    if len(data_layout) == 4:
        return conv2d(inp, filt, stride, padding, dilation, data_layout, kernel_layout, out_dtype, groups)
    if data_layout not in _BY_LAYOUT or kernel_layout not in ("", _KERNELS[data_layout]):
        known = ", ".join(f"{data} with {kernel}" for data, kernel in _KERNELS.items())
        raise DefinitionError(f"conv takes {known}, or images; got {data_layout!r} with {kernel_layout!r}")
    return _BY_LAYOUT[data_layout](inp, filt, stride, padding, dilation, groups, out_dtype)


@checked
def conv1d(
    data: Tensor,
    kernel: Tensor,
    strides: Numbers = 1,
    padding: Padding = "VALID",
    dilation: Numbers = 1,
    data_layout: str = "NCW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> Tensor:
    """Return `conv1d_ncw` or `conv1d_nwc`, by the layout of the data; DefinitionError for others.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.nn.conv1d, [[[1.0, 2.0, 3.0]]], [[[1.0, 1.0]]]).tolist()
    [[[3.0, 5.0]]]
    """
    return conv(data, kernel, strides, padding, dilation, 1, data_layout, kernel_layout, out_dtype)
