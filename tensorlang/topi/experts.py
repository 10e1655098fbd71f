"""Products with the weights that a table chooses for each row: mixtures of experts."""

from __future__ import annotations

from typing import Any

from tensorlang import te
from tensorlang.errors import DefinitionError
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import Tensor
from tensorlang.topi.checked import checked
from tensorlang.topi.nbits import (
    LANES,
    WORD,
    NbitsWeights,
    QuantizedBlocks,
    code_of,
    data_shares,
    quantize_blocks,
    under_scales,
)


@checked
def experts_nbits(
    data: Tensor | QuantizedBlocks, weights: NbitsWeights, table: Tensor, experts: int, name: str = "experts"
) -> Tensor:
    """Return `data[m, k] @ W.T` as float32[m, top, n / experts], where the table int32[m, top] names each W.

    `weights` [n, k] are those of all experts, one behind the other, n / experts rows of each, a multiple of 16. A
    number that is no expert's is brought to the nearest one. Data are quantized as by `matmul_nbits`; only the weights
    that are chosen are read, once for each row that chooses them. DefinitionError for shapes that do not fit.

        >>> from tensorlang import te, topi
        >>> weights = topi.pack_nbits(te.placeholder((64, 4, 18), "uint8"), "q4_0")
        >>> table = te.placeholder((2, 1), "int32")
        >>> topi.experts_nbits(te.placeholder((2, 128)), weights, table, experts=4).shape
        (2, 1, 16)
    """
    form, k, m = weights.form, weights.k, table.shape[0]
    rows = quantize_blocks(data, form.block, f"{name}_data") if isinstance(data, Tensor) else data
    panels, blocks, words = weights.n // LANES // max(1, experts), k // form.block, form.block // WORD
    if experts < 1 or weights.n != experts * panels * LANES or table.ndim != 2 or table.dtype != "int32":
        wanted = f"a multiple of 16 rows of each of {experts} experts, and a table int32[m, top]"
        raise DefinitionError(f"{name} wants {wanted}, got {weights.n} rows and {table}")
    sizes = [extent_of(e) for e in rows.codes.shape]
    if sizes != [extent_of(m), blocks, words, WORD]:
        raise DefinitionError(f"{name}: {rows.codes} are no rows of {k} in blocks of {form.block} for each of {table}")
    top = table.shape[1]

    def panel(i: Any, e: Any, q: Any) -> Any:
        return te.max(te.min(table[i, e], experts - 1), 0) * panels + q

    codes = te.compute(
        (m, top, panels, k // WORD, LANES, WORD),
        lambda i, e, q, v, lane, t: form.value(code_of(weights, panel(i, e, q), v, lane, t)),
        name=f"{name}_weights",
    )
    w, t, b = te.reduce_axis((0, words), "w"), te.reduce_axis((0, WORD), "t"), te.reduce_axis((0, blocks), "b")
    dots = te.compute(  # r: the one row of data that these weights are multiplied with
        (m, top, panels, 1, blocks, LANES),
        lambda i, e, q, r, c, lane: te.sum(
            rows.codes[i + r, c, w, t].astype("int32") * codes[i, e, q, c * words + w, lane, t].astype("int32"),
            axis=[w, t],
        ),
        name=f"{name}_dots",
    )

    shares = data_shares(rows, form, name)

    def term(i: Any, e: Any, q: Any, r: Any, lane: Any) -> Any:
        dot, place = dots[i, e, q, r, b, lane], (panel(i, e, q), b, lane)
        return te.sum(under_scales(weights, place, dot, rows.at(i + r, b, shares)), axis=b)

    sums = te.compute((m, top, panels, 1, LANES), term, name=f"{name}_sums")
    made: Tensor = te.compute((m, top, panels * LANES), lambda i, e, j: sums[i, e, j // LANES, 0, j % LANES], name=name)
    return made
