"""`batch_matmul.x86`: products of a batch of matrices, the second transposed by default."""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang import topi
from tensorlang.autotune.templates.config import Config
from tensorlang.autotune.templates.registry import Scheduled, get_config, template
from tensorlang.autotune.templates.x86.fallback import set_fallback
from tensorlang.autotune.templates.x86.forms import dot_products
from tensorlang.autotune.templates.x86.operands import extents
from tensorlang.errors import DefinitionError
from tensorlang.te.operation import Tensor


@template("batch_matmul.x86")
def batch_matmul(
    A: Tensor,
    B: Tensor,
    out_shape: Sequence[int] | None = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> Scheduled:
    """The sum runs in lanes over k, `tile_k` of them, in tiles of rows and columns that threads share."""
    cfg = get_config()
    out = topi.batch_matmul(A, B, out_dtype, transpose_a, transpose_b)
    q, m, n, k = _space(cfg, A, B, out, transpose_a)
    if out_shape is not None and tuple(out_shape) != (q, m, n):
        raise DefinitionError(
            f"batch_matmul.x86 of {A} and {B} gives {(q, m, n)}, and {tuple(out_shape)} was asked for"
        )
    cfg.add_flop(2 * q * m * n * k)
    return dot_products(cfg, out), [A, B, out]


def _space(cfg: Config, A: Tensor, B: Tensor, out: Tensor, transpose_a: bool) -> tuple[int, int, int, int]:
    """Define the knobs; returns the extents of the batch, of rows, columns and terms."""
    name = "batch_matmul.x86"
    q, m, n = extents(name, out, "b, m, n")
    extents(name, B, "b, n, k")
    k = extents(name, A, "b, m, k")[1 if transpose_a else 2]
    cfg.define_split("tile_y", m, num_outputs=2)
    cfg.define_split("tile_x", n, num_outputs=2)
    cfg.define_split("tile_k", k, num_outputs=2)
    set_fallback(cfg, {"tile_y": [-1, 8], "tile_x": [-1, 8], "tile_k": [-1, 16]})
    return q, m, n, k
