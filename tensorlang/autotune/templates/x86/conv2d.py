"""`conv2d_NCHWc.x86`: convolutions in blocks of channels, windows of one element apart from larger ones.

Data and weights are packed into blocks of `tile_ic` and `tile_oc` channels; the sums are made in those blocks, and
copied to the NCHW output a row at a time. Padding is no copy: the sums leave out what is outside of the image.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang import te, topi
from tensorlang.autotune.templates.config import Config
from tensorlang.autotune.templates.registry import Scheduled, get_config, template
from tensorlang.autotune.templates.x86.fallback import set_fallback
from tensorlang.autotune.templates.x86.operands import extents
from tensorlang.errors import DefinitionError
from tensorlang.schedule import Schedule
from tensorlang.te.axis import Axis
from tensorlang.te.operation import Tensor

_LARGEST_ROW = 64


@template("conv2d_NCHWc.x86")
def conv2d_NCHWc(
    data: Tensor,
    weight: Tensor,
    strides: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    layout: str = "NCHW",
    out_layout: str = "NCHW",
    out_dtype: str | None = None,
) -> Scheduled:
    """A row of `tile_ow` pixels of a block of output channels is kept in registers."""
    if not layout == out_layout == "NCHW":
        raise DefinitionError(f"conv2d_NCHWc.x86 packs NCHW data by itself, got {layout} and {out_layout}")
    _, depth, _, _ = extents("conv2d_NCHWc.x86", data, "n, c, h, w")
    _, _, high, wide = extents("conv2d_NCHWc.x86", weight, "o, c, kh, kw")
    out = topi.conv2d(data, weight, strides, padding, dilation, out_dtype=out_dtype)
    n, features, rows, columns = extents("conv2d_NCHWc.x86", out, "n, o, h, w")
    single = high == wide == 1
    cfg = get_config()
    cfg.define_split("tile_ic", depth, num_outputs=2)
    cfg.define_split("tile_oc", features, num_outputs=2)
    cfg.define_split("tile_ow", columns, num_outputs=2, filter=lambda e: e.size[-1] <= _LARGEST_ROW, policy="verbose")
    if single:
        cfg.define_knob("tile_oh", [1, 2] if rows > 1 else [1])
    else:
        cfg.define_knob("unroll_kw", [True, False])
    cfg.add_flop(2 * n * features * rows * columns * depth * high * wide)
    set_fallback(cfg, {"tile_ic": [-1, 16], "tile_oc": [-1, 16], "tile_ow": [-1, 14]})
    s = te.create_schedule(out.op)
    CC = _packed_sums(s, cfg, data, weight, out)
    (_pixels if single else _window)(s, cfg, out, CC)
    return s, [data, weight, out]


def _packed_sums(s: Schedule, cfg: Config, data: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    """Sums in blocks of output channels, of data and weights in blocks; the copies are shared out among threads."""
    ic, oc = cfg["tile_ic"].size[-1], cfg["tile_oc"].size[-1]
    CC: Tensor = s.cache_write(out, "global")
    s[CC].transform_layout(lambda n, o, h, w: (n, o // oc, h, w, o % oc))
    images = s[s.cache_read(data, "global", [CC])]
    n, c, h, _, block = images.transform_layout(lambda n, c, h, w: (n, c // ic, h, w, c % ic))
    images.vectorize(block)
    images.parallel(images.fuse(n, c, h))
    weights = s[s.cache_read(weight, "global", [CC])]
    o, c, y, x, ci, block = weights.transform_layout(lambda o, c, y, x: (o // oc, c // ic, y, x, c % ic, o % oc))
    weights.reorder(o, y, c, x, ci, block)
    weights.vectorize(block)
    weights.parallel(weights.fuse(o, y))
    return CC


def _window(s: Schedule, cfg: Config, out: Tensor, CC: Tensor) -> None:
    """Windows of several elements: a row of pixels at a time, element by element, all channels of a block for each."""
    pixels = cfg["tile_ow"].size[-1]
    n, oo, oi, oh, ow = _blocks(s, cfg, out)
    wo, wi = s[out].split(ow, factor=pixels)
    s[out].reorder(n, oo, oh, wo, oi, wi)
    _copy(s, out, s[out].fuse(n, oo, oh), wi)
    s[CC].compute_at(s[out], wo)
    _, oo, oh, ow, oi = s[CC].op.axis
    c, y, x = s[CC].op.reduce_axis
    wo, wi = s[CC].split(ow, factor=pixels)
    co, ci = s[CC].split(c, factor=cfg["tile_ic"].size[-1])
    if cfg["unroll_kw"].val:
        s[CC].reorder(oo, oh, wo, co, y, ci, x, wi, oi)
        s[CC].unroll(x)
    else:
        s[CC].reorder(oo, oh, wo, co, y, x, ci, wi, oi)
    s[CC].vectorize(oi)
    s[CC].unroll(wi)


def _pixels(s: Schedule, cfg: Config, out: Tensor, CC: Tensor) -> None:
    """Windows of one element: `tile_oh` rows of pixels at a time, a channel for all of them after the other."""
    rows, pixels = cfg["tile_oh"].val, cfg["tile_ow"].size[-1]
    n, oo, oi, oh, ow = _blocks(s, cfg, out)
    ho, hi = s[out].split(oh, factor=rows)
    wo, wi = s[out].split(ow, factor=pixels)
    s[out].reorder(n, oo, ho, wo, hi, oi, wi)
    shared = s[out].fuse(n, oo, ho)
    _copy(s, out, shared, wi)
    s[CC].compute_at(s[out], shared)
    _, oo, oh, ow, oi = s[CC].op.axis
    c, y, x = s[CC].op.reduce_axis
    co, ci = s[CC].split(c, factor=cfg["tile_ic"].size[-1])
    ho, hi = s[CC].split(oh, factor=rows)
    wo, wi = s[CC].split(ow, factor=pixels)
    s[CC].reorder(oo, ho, wo, y, x, co, ci, hi, wi, oi)
    s[CC].vectorize(oi)
    s[CC].unroll(wi)
    s[CC].unroll(hi)


def _blocks(s: Schedule, cfg: Config, out: Tensor) -> list[Axis]:
    """The loops of the output, its channels in blocks."""
    n, o, oh, ow = s[out].op.axis
    oo, oi = s[out].split(o, factor=cfg["tile_oc"].size[-1])
    return [n, oo, oi, oh, ow]


def _copy(s: Schedule, out: Tensor, shared: Axis, row: Axis) -> None:
    """Copy rows of pixels, as many as there are threads at a time."""
    s[out].vectorize(row)
    s[out].parallel(shared)
