"""`dense_nopack.x86` and `dense_pack.x86`: data[m, k] times weight[n, k] transposed, plus a bias."""

from __future__ import annotations

from tensorlang import te, topi
from tensorlang.autotune.templates.config import Config
from tensorlang.autotune.templates.registry import Scheduled, get_config, template
from tensorlang.autotune.templates.x86.dots import dot_products
from tensorlang.autotune.templates.x86.fallback import set_fallback
from tensorlang.autotune.templates.x86.operands import extents
from tensorlang.schedule import Schedule
from tensorlang.te.axis import Axis
from tensorlang.te.operation import Tensor

_LARGEST_INNER = 16


@template("dense_nopack.x86")
def dense_nopack(data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: str | None = None) -> Scheduled:
    """The sum runs in lanes over k, `tile_k` of them, which are added up at the end of a tile."""
    cfg, args, _ = _program("dense_nopack.x86", data, weight, bias, out_dtype, parts=2)
    set_fallback(cfg, {"tile_y": [-1, 2], "tile_x": [-1, 4], "tile_k": [-1, 16]})
    return dot_products(cfg, args[-1]), args


@template("dense_pack.x86")
def dense_pack(data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: str | None = None) -> Scheduled:
    """Weights are packed in panels as wide as the inner part of `tile_x`; a tile of sums is kept in registers."""
    cfg, args, C = _program("dense_pack.x86", data, weight, bias, out_dtype, parts=3)
    rows, _ = extents("dense_pack.x86", data, "m, k")
    cfg.define_split("tile_inner", rows, num_outputs=2, filter=lambda e: e.size[-1] <= _LARGEST_INNER)
    set_fallback(cfg, {"tile_y": [-1, 4, 8], "tile_x": [-1, 4, 16], "tile_k": [-1, 1], "tile_inner": [-1, 8]})
    out = args[-1]
    s = te.create_schedule(out.op)
    CC = s.cache_write(C, "global")
    _pack(s, weight, CC, cfg["tile_x"].size[-1])
    xyt, xyo, yi, xi = _tiles(s, cfg, C)
    if out is C:
        s[C].parallel(xyt)
    s[C].unroll(yi)
    s[C].vectorize(xi)
    s[CC].compute_at(s[C], xyo)
    _sums(s, cfg, CC)
    if out is not C:
        around, _, _, lanes = _tiles(s, cfg, out)
        s[C].compute_at(s[out], around)
        s[out].vectorize(lanes)
        s[out].parallel(around)
    return s, args


def _program(
    name: str, data: Tensor, weight: Tensor, bias: Tensor | None, out_dtype: str | None, parts: int
) -> tuple[Config, list[Tensor], Tensor]:
    """The knobs that both share, rows and columns split into `parts`; the tensors, and the product."""
    m, k = extents(name, data, "m, k")
    n, _ = extents(name, weight, "n, k")
    cfg = get_config()
    cfg.define_split("tile_y", m, num_outputs=parts)
    cfg.define_split("tile_x", n, num_outputs=parts)
    cfg.define_split("tile_k", k, num_outputs=2)
    cfg.add_flop(2 * m * n * k)
    out = topi.dense(data, weight, bias, out_dtype)
    product = out if bias is None else out.op.input_tensors[0]
    return cfg, [t for t in (data, weight, bias, out) if t is not None], product


def _pack(s: Schedule, weight: Tensor, reader: Tensor, width: int) -> None:
    """Read the weights from panels [n / width, k, width]."""
    panels = s[s.cache_read(weight, "global", [reader])]
    panel, *_ = panels.transform_layout(lambda n, k: (n // width, k, n % width))
    panels.parallel(panel)


def _tiles(s: Schedule, cfg: Config, tensor: Tensor) -> list[Axis]:
    """Tile rows and columns twice: the loop over outer tiles, that over inner ones, rows and columns of one."""
    y, x = s[tensor].op.axis
    yt, yo, yi = cfg["tile_y"].apply(s, tensor, y)
    xt, xo, xi = cfg["tile_x"].apply(s, tensor, x)
    s[tensor].reorder(xt, yt, yo, xo, yi, xi)
    return [s[tensor].fuse(xt, yt), s[tensor].fuse(yo, xo), yi, xi]


def _sums(s: Schedule, cfg: Config, CC: Tensor) -> None:
    """The sums of a tile: vectors of columns, rows and some terms unrolled."""
    y, x = s[CC].op.axis
    ko, ki = cfg["tile_k"].apply(s, CC, s[CC].op.reduce_axis[0])
    rows = cfg["tile_inner"].size[-1]
    if rows > 1:
        yo, yi = s[CC].split(y, rows)
        s[CC].reorder(ko, yo, ki, yi, x)
        unrolled = [yo, ki, yi]
    else:
        s[CC].reorder(ko, ki, y, x)
        unrolled = [ki, y]
    for axis in unrolled:
        s[CC].unroll(axis)
    s[CC].vectorize(x)
