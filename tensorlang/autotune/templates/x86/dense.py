"""`dense_nopack.x86` and `dense_pack.x86`: data[m, k] times weight[n, k] transposed, plus a bias."""

from __future__ import annotations

from tensorlang import topi
from tensorlang.autotune.templates.config import Config
from tensorlang.autotune.templates.registry import Scheduled, get_config, template
from tensorlang.autotune.templates.x86.fallback import set_fallback
from tensorlang.autotune.templates.x86.forms import dot_products, packed_tiles
from tensorlang.autotune.templates.x86.operands import extents
from tensorlang.te.operation import Tensor

_LARGEST_INNER = 16


@template("dense_nopack.x86")
def dense_nopack(data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: str | None = None) -> Scheduled:
    """The sum runs in lanes over k, `tile_k` of them, which are added up at the end of a tile."""
    cfg, args = _program("dense_nopack.x86", data, weight, bias, out_dtype, parts=2)
    set_fallback(cfg, {"tile_y": [-1, 2], "tile_x": [-1, 4], "tile_k": [-1, 16]})
    return dot_products(cfg, args[-1]), args


@template("dense_pack.x86")
def dense_pack(data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: str | None = None) -> Scheduled:
    """Weights are packed in panels as wide as the inner part of `tile_x`; a tile of sums is kept in registers.

    Its rows are those of the inner part of `tile_y`, at most so many as `tile_inner` says.
    """
    cfg, args = _program("dense_pack.x86", data, weight, bias, out_dtype, parts=3)
    rows, _ = extents("dense_pack.x86", data, "m, k")
    cfg.define_split("tile_inner", rows, num_outputs=2, filter=lambda e: e.size[-1] <= _LARGEST_INNER)
    set_fallback(cfg, {"tile_y": [-1, 4, 8], "tile_x": [-1, 4, 16], "tile_k": [-1, 1], "tile_inner": [-1, 8]})
    return packed_tiles(cfg, args[-1]), args


def _program(
    name: str, data: Tensor, weight: Tensor, bias: Tensor | None, out_dtype: str | None, parts: int
) -> tuple[Config, list[Tensor]]:
    """The knobs that both share, rows and columns split into `parts`; and the tensors."""
    m, k = extents(name, data, "m, k")
    n, _ = extents(name, weight, "n, k")
    cfg = get_config()
    cfg.define_split("tile_y", m, num_outputs=parts)
    cfg.define_split("tile_x", n, num_outputs=parts)
    cfg.define_split("tile_k", k, num_outputs=2)
    cfg.add_flop(2 * m * n * k)
    out = topi.dense(data, weight, bias, out_dtype)
    return cfg, [t for t in (data, weight, bias, out) if t is not None]
