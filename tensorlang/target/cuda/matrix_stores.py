"""Stores of accumulators to shared memory by one instruction of a warp: `te.intrin("cuda.stmatrix.bf16")`.

What is stored are elements of 16 bits, two to a register, which a stage in scope `warp` has made of the sums. Each
lane's address is that of a row of 16 bytes. PTX ISA, "stmatrix".
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorlang.dataclass import dataclass
from tensorlang.ir.fragment import Fragment
from tensorlang.ir.machine import LANE, Pointer
from tensorlang.ir.simplify import simplify
from tensorlang.ir.stmt import Stmt
from tensorlang.target.cuda.fragments import (
    GROUP_ROWS_DOWN,
    ROWS_DOWN,
    ROWS_RIGHT,
    Gather,
    c_fragment,
    group_accumulator,
)
from tensorlang.target.cuda.intrinsics import INTRINSICS
from tensorlang.te.define import compute, placeholder
from tensorlang.te.domain import size_var
from tensorlang.te.intrinsic import TensorIntrin
from tensorlang.te.machine import call_extern, stmt_seq
from tensorlang.te.tensor_intrin import decl_tensor_intrin
from tensorlang.te.tile_buffer import TileBuffer, decl_buffer

_COLUMNS = 16
_CHUNK = 8
"""Elements in a row of a matrix, of 16 bytes."""


@dataclass(frozen=True, slots=True)
class MatrixStore:
    """`out[i, j] = tile[i, j]` from registers to shared memory by one stmatrix."""

    name: str
    dtype: str
    scatter: Gather
    fragment: Fragment
    shape: tuple[int, int]

    def declare(self) -> TensorIntrin:
        """Declare the instruction as an intrinsic."""
        tile = placeholder(self.shape, self.dtype, "tile")
        out = compute(self.shape, lambda i, j: tile[i, j], name="out")
        row = INTRINSICS[self.scatter.instruction]

        def statements(ins: list[TileBuffer], outs: list[TileBuffer]) -> Stmt:
            down, chunk = self.scatter.place(LANE)
            to = Pointer(outs[0].buffer, (simplify(down), simplify(chunk * _CHUNK)), "w")
            return stmt_seq(call_extern("void", row.name, to, ins[0].access_ptr("r")))

        shared = decl_buffer(
            out.shape, self.dtype, "out", strides=[size_var("row"), 1], offset_factor=_CHUNK, scope="shared"
        )
        return decl_tensor_intrin(
            out.op,
            statements,
            self.name,
            {tile: decl_buffer(tile.shape, self.dtype, "tile", scope="warp", fragment=self.fragment), out: shared},
            architecture="cuda",
            features=(row.architecture,),
            source=row.text.strip(),
            lanes=self.fragment.lanes,
        )


def matrix_stores() -> Iterator[MatrixStore]:
    """Yield the stores of a warp's sums, of those that an array has as [column][row], and of those of a warp group."""
    tile, group = (16, _COLUMNS), (64, _COLUMNS)
    for element, dtype in (("bf16", "bfloat16"), ("f16", "float16")):
        yield MatrixStore(f"cuda.stmatrix.{element}", dtype, ROWS_DOWN, c_fragment(2), tile)
        yield MatrixStore(f"cuda.stmatrix.trans.{element}", dtype, ROWS_RIGHT, c_fragment(2).transposed, tile)
        sums = group_accumulator(_COLUMNS, 2)
        yield MatrixStore(f"cuda.stmatrix.group.{element}", dtype, GROUP_ROWS_DOWN, sums, group)
