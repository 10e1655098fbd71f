"""`conv2d_NCHWc.x86`: convolutions in blocks of channels, windows of one element apart from larger ones.

Weights are packed into blocks of `tile_oc` channels, and the sums are made in those; data is read as it lies, in blocks
of `tile_ic` channels. Padding is no copy: the sums leave out what is outside of the image.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang import topi
from tensorlang.autotune.templates.registry import Scheduled, get_config, template
from tensorlang.autotune.templates.x86.fallback import set_fallback
from tensorlang.autotune.templates.x86.forms import convolved
from tensorlang.autotune.templates.x86.operands import extents
from tensorlang.errors import DefinitionError
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
    """A row of `tile_ow` pixels of a block of output channels is kept in registers; of 1 * 1, `tile_oh` of them."""
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
    return convolved(cfg, out, single), [data, weight, out]
