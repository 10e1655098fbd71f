"""Families of instructions, and how a row of each becomes a declared intrinsic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Expr, cast
from tensorlang.ir.stmt import Stmt
from tensorlang.te.define import compute, placeholder, var
from tensorlang.te.domain import reduce_axis
from tensorlang.te.intrinsic import TensorIntrin
from tensorlang.te.machine import broadcast, call_llvm_intrin, const, reinterpret
from tensorlang.te.operation import Tensor
from tensorlang.te.reductions import sum_
from tensorlang.te.tensor_intrin import decl_tensor_intrin
from tensorlang.te.tile_buffer import TileBuffer, decl_buffer


@dataclass(frozen=True, slots=True)
class Dot:
    """`out[i] += sum over k < group of data[k] * kernel[i, k]`: short dot products, one per lane.

    `llvm(out, first, second)` takes `data` repeated per lane and `kernel`, the other way around if `kernel_first`; as
    vectors of the accumulator's dtype if `packed`, else of their own.
    """

    name: str
    llvm: str
    data: str
    kernel: str
    out: str
    lanes: int
    group: int
    architecture: str
    features: tuple[str, ...]
    packed: bool = True
    kernel_first: bool = False

    def declare(self) -> TensorIntrin:
        """Declare the instruction as an intrinsic."""
        data = placeholder((self.group,), self.data, "data")
        kernel = placeholder((self.lanes, self.group), self.kernel, "kernel")
        k = reduce_axis((0, self.group), "k")

        def element(i: Any) -> Expr:
            return sum_(cast(data[k], self.out) * cast(kernel[i, k], self.out), axis=k)

        out = compute((self.lanes,), element, name="out")
        return decl_tensor_intrin(
            out.op, self._statements, self.name, architecture=self.architecture, features=self.features
        )

    def _statements(self, ins: list[TileBuffer], outs: list[TileBuffer]) -> tuple[Stmt, Stmt, Stmt]:
        accumulator, zero = f"{self.out}x{self.lanes}", const(0, f"{self.out}x{self.lanes}")
        data, kernel = ins
        word = f"uint{8 * dtypes.info(self.data).bytes * self.group}"
        row = broadcast(reinterpret(word, data.vload([0], f"{self.data}x{self.group}")), self.lanes)
        rows = kernel.vload([0, 0], f"{self.kernel}x{self.lanes * self.group}")

        def added_to(start: Expr) -> Stmt:
            return outs[0].vstore([0], self.added(start, row, rows))

        return added_to(zero), outs[0].vstore([0], zero), added_to(outs[0].vload([0], accumulator))

    def added(self, start: Expr, row: Expr, rows: Expr) -> Expr:
        """Add the products of `row`, a word in each lane, with the bytes of `rows` to accumulators."""
        accumulator, wide = f"{self.out}x{self.lanes}", self.lanes * self.group
        operands = (
            reinterpret(accumulator if self.packed else f"{self.data}x{wide}", row),
            reinterpret(accumulator, rows) if self.packed else rows,
        )
        first, second = reversed(operands) if self.kernel_first else operands
        return call_llvm_intrin(accumulator, self.llvm, start, first, second)


@dataclass(frozen=True, slots=True)
class PairDot(Dot):
    """The same of bytes, by an instruction that adds up pairs of products of unsigned by signed bytes in 16 bits.

    It saturates where both products are large. So the highest bits of the unsigned bytes are multiplied apart, which is
    exact; where they are known to be zero, LLVM leaves that away. `llvm` takes pairs, `halves` adds up two of them.
    """

    halves: str = ""

    def added(self, start: Expr, row: Expr, rows: Expr) -> Expr:
        """Add the products of `row`, a word in each lane, with the bytes of `rows` to accumulators."""
        wide, sums = self.lanes * self.group, f"int16x{self.lanes * self.group // 2}"
        data = reinterpret(f"{self.data}x{wide}", row)
        unsigned, signed = (rows, data) if self.kernel_first else (data, rows)
        for bits in (0x80, 0x7F):
            pairs = call_llvm_intrin(sums, self.llvm, unsigned & const(bits, f"uint8x{wide}"), signed)
            start = start + call_llvm_intrin(f"{self.out}x{self.lanes}", self.halves, pairs, const(1, sums))
        return start


@dataclass(frozen=True, slots=True)
class Pairs:
    """`out[i] += a[2 i] b[2 i] + a[2 i + 1] b[2 i + 1]`: both vectors as they lie along the terms of a sum.

    `a` and `b` are their dtypes; what is narrower in `b` is widened. `llvm(out, a, b)`; without `out` unless it `adds`.
    """

    name: str
    llvm: str
    a: str
    b: str
    out: str
    lanes: int
    features: tuple[str, ...] = ()
    adds: bool = True

    def declare(self) -> TensorIntrin:
        """Declare the instruction as an intrinsic."""
        out = self._definition()
        rows = [tensor for tensor in out.op.input_tensors if tensor.ndim > 1]
        return decl_tensor_intrin(
            out.op,
            self._statements,
            self.name,
            binds={t: decl_buffer(t.shape, t.dtype, t.name, strides=[var("apart"), 1]) for t in rows},
            architecture="x86_64",
            features=self.features,
        )

    def _definition(self) -> Tensor:
        a, b = (placeholder((2 * self.lanes,), dtype, name) for name, dtype in (("a", self.a), ("b", self.b)))
        k = reduce_axis((0, 2), "k")

        def element(i: Any) -> Expr:
            return sum_(cast(a[i * 2 + k], self.out) * cast(b[i * 2 + k], self.out), axis=k)

        made: Tensor = compute((self.lanes,), element, name="out")
        return made

    def _statements(self, ins: list[TileBuffer], outs: list[TileBuffer]) -> tuple[Stmt, Stmt, Stmt]:
        accumulator, zero = f"{self.out}x{self.lanes}", const(0, f"{self.out}x{self.lanes}")
        taken = accumulator if self.out == "int32" and self.adds else f"{self.a}x{2 * self.lanes}"
        operands = tuple(reinterpret(taken, operand) for operand in self._operands(ins))

        def added_to(start: Expr) -> Stmt:
            made = call_llvm_intrin(accumulator, self.llvm, *([start] if self.adds else []), *operands)
            return outs[0].vstore([0], made if self.adds else start + made)

        return added_to(zero), outs[0].vstore([0], zero), added_to(outs[0].vload([0], accumulator))

    def _operands(self, ins: list[TileBuffer]) -> tuple[Expr, Expr]:
        wide = 2 * self.lanes
        return ins[0].vload([0], f"{self.a}x{wide}"), cast(ins[1].vload([0], f"{self.b}x{wide}"), self.a)


@dataclass(frozen=True, slots=True)
class PairOfRows(Pairs):
    """`out[i] += a[0] b[0, i] + a[1] b[1, i]`: two rows as they lie, by two factors."""

    def _definition(self) -> Tensor:
        a, b = placeholder((2,), self.a, "a"), placeholder((2, self.lanes), self.b, "b")
        k = reduce_axis((0, 2), "k")

        def element(i: Any) -> Expr:
            return sum_(cast(a[k], self.out) * cast(b[k, i], self.out), axis=k)

        made: Tensor = compute((self.lanes,), element, name="out")
        return made

    def _operands(self, ins: list[TileBuffer]) -> tuple[Expr, Expr]:
        bits, wide = dtypes.info(self.b).bits, 2 * self.lanes
        word, element = f"uint{2 * dtypes.info(self.a).bits}", f"int{bits}x{self.lanes}"
        factors = broadcast(reinterpret(word, ins[0].vload([0], f"{self.a}x2")), self.lanes)
        rows = [reinterpret(element, ins[1].vload([row, 0], f"{self.b}x{self.lanes}")) for row in range(2)]
        woven = call_llvm_intrin(f"int{bits}x{wide}", f"llvm.vector.interleave2.v{wide}i{bits}", *rows)
        return factors, woven if self.a == self.b else cast(woven, self.a)


@dataclass(frozen=True, slots=True)
class Axpy:
    """`out[i] += scale * row[i]` by fused multiply-adds: the inner step of an outer product, for every CPU."""

    name: str
    dtype: str
    lanes: int

    def declare(self) -> TensorIntrin:
        """Declare the instruction as an intrinsic."""
        scale = placeholder((1,), self.dtype, "scale")
        row = placeholder((1, self.lanes), self.dtype, "row")
        k = reduce_axis((0, 1), "k")
        out = compute((self.lanes,), lambda i: sum_(scale[k] * row[k, i], axis=k), name="out")
        return decl_tensor_intrin(out.op, self._statements, self.name)

    def _statements(self, ins: list[TileBuffer], outs: list[TileBuffer]) -> tuple[Stmt, Stmt, Stmt]:
        vector = f"{self.dtype}x{self.lanes}"
        factor, row = broadcast(ins[0].vload([0]), self.lanes), ins[1].vload([0, 0], vector)
        fma = f"llvm.fma.v{self.lanes}f{8 * dtypes.info(self.dtype).bytes}"
        update = call_llvm_intrin(vector, fma, factor, row, outs[0].vload([0], vector))
        zero = const(0.0, vector)
        return outs[0].vstore([0], factor * row), outs[0].vstore([0], zero), outs[0].vstore([0], update)


def table(*rows: Dot | Pairs | Axpy) -> dict[str, Callable[[], TensorIntrin]]:
    """Rows by name, as what declares them."""
    return {row.name: row.declare for row in rows}
