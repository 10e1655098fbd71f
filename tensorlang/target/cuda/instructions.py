"""The matrix instructions of CUDA as intrinsics that a schedule can name: `te.intrin("cuda.mma.m16n8k16.bf16")`.

Operands lie in the registers of a warp (scope `warp`), where ldmatrix brings them from shared memory. `bt` in a name
says that the right operand is there as [n][k], else it is [k][n]. Products of warp groups (wgmma) take their operands
from shared memory instead, in swizzled rows of 128 bytes of k. Products of float32 are made of tf32 numbers, to
which ldmatrix rounds; with `cut` in the name it leaves that to the product, which drops the low bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tensorlang import dtypes
from tensorlang.ir.expr import Expr, cast
from tensorlang.ir.fragment import Fragment
from tensorlang.ir.machine import ASYNC_PROXY, LANE, Pointer
from tensorlang.ir.simplify import simplify
from tensorlang.ir.stmt import Stmt
from tensorlang.target.cuda.fragments import (
    A_ROWS,
    B_COLUMNS,
    B_ROWS,
    GROUP,
    PACKED,
    WARP,
    Gather,
    group_multiply,
    warp_multiply,
)
from tensorlang.target.cuda.intrinsics import INTRINSICS
from tensorlang.target.cuda.wgmma import WIDTHS
from tensorlang.te.define import compute, placeholder
from tensorlang.te.domain import reduce_axis, var
from tensorlang.te.intrinsic import TensorIntrin
from tensorlang.te.machine import call_extern, stmt_seq
from tensorlang.te.reductions import sum_
from tensorlang.te.tensor_intrin import decl_tensor_intrin
from tensorlang.te.tile_buffer import TileBuffer, decl_buffer

DTYPES = {"bf16": "bfloat16", "f16": "float16", "tf32": "float32", "s8": "int8", "u8": "uint8"}
"""The elements of operands, by their names in PTX."""

_ACCUMULATORS = {"f32": "float32", "s32": "int32"}
_C_TYPES = {"float32": "float", "int32": "int"}
_ROW = 128  # bytes of k that a product of a warp group takes
_QUALIFIERS = "__device__ __forceinline__ void"


@dataclass(frozen=True, slots=True)
class Product:
    """`c[i, j] += sum over k of a[i, k] * b[k, j]` by one mma.sync; `turned`: b is read as b[j, k]."""

    element: str
    accumulator: str
    turned: bool

    @property
    def name(self) -> str:
        """What te.intrin knows it by."""
        of = warp_multiply(self.element, self.accumulator)
        return f"cuda.mma.m{of.m}n{of.n}k{of.k}.{self.element}{'.bt' if self.turned else ''}"

    def declare(self) -> TensorIntrin:
        """Declare the instruction as an intrinsic."""
        of = warp_multiply(self.element, self.accumulator)
        assert of.b is not None
        dtype, total = DTYPES[self.element], _ACCUMULATORS[self.accumulator]
        a = placeholder((of.m, of.k), dtype, "a")
        b = placeholder((of.n, of.k) if self.turned else (of.k, of.n), dtype, "b")
        k = reduce_axis((0, of.k), "k")

        def element(i: Any, j: Any) -> Expr:
            return sum_(cast(a[i, k], total) * cast(b[j, k] if self.turned else b[k, j], total), axis=k)

        c = compute((of.m, of.n), element, name="c")
        held = {a: of.a, b: of.b.transposed if self.turned else of.b, c: of.c}
        row = INTRINSICS[of.name]
        function, source = _over_floats(of.name) if self.element == "tf32" else (of.name, row.text)
        zero = f"tl_zero_{self.accumulator}x{of.c.registers}"

        def statements(ins: list[TileBuffer], outs: list[TileBuffer]) -> tuple[Stmt, Stmt, Stmt]:
            operands = (tile.access_ptr("r") for tile in ins)
            add = call_extern("void", function, outs[0].access_ptr("rw"), *operands)
            clear = call_extern("void", zero, outs[0].access_ptr("w"))
            return stmt_seq(clear, add), stmt_seq(clear), stmt_seq(add)

        return decl_tensor_intrin(
            c.op,
            statements,
            self.name,
            {t: _in_registers(t.shape, t.dtype, t.name, held[t]) for t in (a, b, c)},
            architecture="cuda",
            features=(row.architecture,),
            source=_joined(source, _zero(zero, _C_TYPES[total], of.c.registers)),
            lanes=WARP,
        )


@dataclass(frozen=True, slots=True)
class GroupProduct:
    """`c[i, j] += sum over k of a[i, k] * b[j, k]`, 64 by `columns` by 128 bytes of k, by the wgmma of 128 threads.

    It waits for its products. What threads wrote to shared memory before is fenced where they wait for each other.
    """

    element: str
    accumulator: str
    columns: int

    @property
    def name(self) -> str:
        """What te.intrin knows it by."""
        return f"cuda.wgmma.m64n{self.columns}k{self._depth}.{self.element}.bt"

    @property
    def _depth(self) -> int:
        return _ROW // dtypes.info(DTYPES[self.element]).bytes

    def declare(self) -> TensorIntrin:
        """Declare the instruction as an intrinsic."""
        of, depth = group_multiply(self.element, self.columns, self.accumulator), self._depth
        dtype, total = DTYPES[self.element], _ACCUMULATORS[self.accumulator]
        a, b = placeholder((of.m, depth), dtype, "a"), placeholder((of.n, depth), dtype, "b")
        k = reduce_axis((0, depth), "k")
        c = compute((of.m, of.n), lambda i, j: sum_(cast(a[i, k], total) * cast(b[j, k], total), axis=k), name="c")
        kind, function, zero = _C_TYPES[total], f"{of.name}_row", f"tl_zero_{self.accumulator}x{of.c.registers}"
        called = ("tl_wgmma_descriptor", "tl_wgmma_fence", "tl_wgmma_commit", "tl_wgmma_wait", "tl_fence_proxy_async")
        parts = (*(INTRINSICS[name].text for name in (of.name, *called)), _row_of_products(of.name, function, kind))

        def statements(ins: list[TileBuffer], outs: list[TileBuffer]) -> tuple[Stmt, Stmt, Stmt]:
            operands = (tile.access_ptr("r") for tile in ins)
            add = call_extern("void", function, outs[0].access_ptr("rw"), *operands)
            clear = call_extern("void", zero, outs[0].access_ptr("w"))
            return stmt_seq(clear, add), stmt_seq(clear), stmt_seq(add)

        # Eight rows of 128 bytes, the unit of the hardware's swizzle.
        tiles = {
            t: decl_buffer(t.shape, dtype, t.name, offset_factor=8 * depth, scope="shared", swizzled=True)
            for t in (a, b)
        }
        return decl_tensor_intrin(
            c.op,
            statements,
            self.name,
            {**tiles, c: _in_registers(c.shape, total, "c", of.c)},
            architecture="cuda",
            features=(INTRINSICS[of.name].architecture, ASYNC_PROXY),
            source=_joined(*parts, _zero(zero, kind, of.c.registers)),
            lanes=GROUP,
        )


@dataclass(frozen=True, slots=True)
class MatrixLoad:
    """`out[i, j] = tile[i, j]` from shared memory to registers by one ldmatrix, as an operand of a product."""

    name: str
    element: str
    gather: Gather
    fragment: Fragment
    shape: tuple[int, int]
    rounds: bool = False

    def declare(self) -> TensorIntrin:
        """Declare the instruction as an intrinsic."""
        dtype = DTYPES[self.element]
        tile = placeholder(self.shape, dtype, "tile")
        out = compute(self.shape, lambda i, j: tile[i, j], name="out")
        function, source = self.gather.instruction, INTRINSICS[self.gather.instruction].text
        if self.element == "tf32":
            function, source = _load_of_floats(function, self.rounds)
        chunk = 16 // dtypes.info(dtype).bytes

        def statements(ins: list[TileBuffer], outs: list[TileBuffer]) -> Stmt:
            row, column = self.gather.place(LANE)
            index = (simplify(row), simplify(column * chunk))
            return stmt_seq(call_extern("void", function, outs[0].access_ptr("w"), Pointer(ins[0].buffer, index, "r")))

        # 16 bytes at the address of each lane.
        shared = decl_buffer(tile.shape, dtype, "tile", strides=[var("row"), 1], offset_factor=chunk, scope="shared")
        return decl_tensor_intrin(
            out.op,
            statements,
            self.name,
            {tile: shared, out: _in_registers(self.shape, dtype, "out", self.fragment)},
            architecture="cuda",
            features=("sm_80" if self.rounds else INTRINSICS[self.gather.instruction].architecture,),
            source=source,
            lanes=WARP,
        )


def _in_registers(shape: Any, dtype: str, name: str, fragment: Fragment) -> TileBuffer:
    return decl_buffer(shape, dtype, name, scope="warp", fragment=fragment)


def _joined(*texts: str) -> str:
    """Definitions as they stand in a source: with an empty line between."""
    return "\n\n".join(text.strip() for text in texts)


def _zero(name: str, kind: str, count: int) -> str:
    return f"{_QUALIFIERS} {name}({kind}* c) {{\n#pragma unroll\n  for (int k = 0; k < {count}; ++k) c[k] = 0;\n}}"


def _row_of_products(name: str, own: str, kind: str) -> str:
    """Four products along a row of 128 bytes, waited for."""
    lines = [
        "const unsigned long long left = tl_wgmma_descriptor(a, 16, 1024, 1);",
        "const unsigned long long right = tl_wgmma_descriptor(b, 16, 1024, 1);",
        "tl_wgmma_fence();",
        "#pragma unroll",
        f"for (int k = 0; k < 4; ++k) {name}(d, left + 2 * k, right + 2 * k, 1);",
        "tl_wgmma_commit();",
        "tl_wgmma_wait<0>();",
    ]
    body = "\n".join(f"  {line}" for line in lines)
    return f"{_QUALIFIERS} {own}({kind}* d, const void* a, const void* b) {{\n{body}\n}}"


def _over_floats(name: str) -> tuple[str, str]:
    """A product of tf32 over registers that hold floats."""
    bits = {x: ", ".join(f"__float_as_uint({x}[{k}])" for k in range(n)) for x, n in (("a", 4), ("b", 2))}
    lines = [f"const unsigned left[4] = {{{bits['a']}}};", f"const unsigned right[2] = {{{bits['b']}}};"]
    body = "\n".join(f"  {line}" for line in (*lines, f"{name}(c, left, right);"))
    text = f"{_QUALIFIERS} {name}_floats(float* c, const float* a, const float* b) {{\n{body}\n}}"
    return f"{name}_floats", _joined(INTRINSICS[name].text, text)


def _load_of_floats(name: str, rounds: bool) -> tuple[str, str]:
    """A load of floats, rounded to tf32 or not."""
    value = "__uint_as_float({})"
    value = value.format("tl_tf32_from_f32(__uint_as_float(bits[{}]))") if rounds else value.format("bits[{}]")
    moves = " ".join(f"r[{k}] = {value.format(k)};" for k in range(4))
    own = f"{name}_{'tf32' if rounds else 'f32'}"
    body = "\n".join(f"  {line}" for line in ("unsigned bits[4];", f"{name}(bits, row);", moves))
    text = f"{_QUALIFIERS} {own}(float* r, const void* row) {{\n{body}\n}}"
    used = (INTRINSICS[name].text, *((INTRINSICS["tl_tf32_from_f32"].text,) if rounds else ()))
    return own, _joined(*used, text)


def _products() -> list[Product]:
    found = [Product(e, "s32" if e in ("s8", "u8") else "f32", turned=True) for e in DTYPES]
    return found + [Product(p.element, p.accumulator, turned=False) for p in found]


def _group_products() -> list[GroupProduct]:
    found = [(e, "s32" if e in ("s8", "u8") else "f32") for e in DTYPES if e != "tf32"]
    return [GroupProduct(e, total, columns) for e, total in found for columns in WIDTHS]


def _loads() -> list[MatrixLoad]:
    found: list[MatrixLoad] = []
    for element in DTYPES:
        of, packed = warp_multiply(element, "s32" if element in ("s8", "u8") else "f32"), PACKED[element]
        assert of.b is not None
        for rounds in (True, False) if element == "tf32" else (False,):
            end = element + (".cut" if element == "tf32" and not rounds else "")
            a, bt = (16, of.k), (16, of.k)
            found.append(MatrixLoad(f"cuda.ldmatrix.a.{end}", element, A_ROWS, of.a, a, rounds))
            found.append(MatrixLoad(f"cuda.ldmatrix.bt.{end}", element, B_COLUMNS, of.b.transposed, bt, rounds))
        if packed == 2:
            found.append(MatrixLoad(f"cuda.ldmatrix.b.{element}", element, B_ROWS, of.b, (of.k, 16)))
    return found


TABLE: dict[str, Callable[[], TensorIntrin]] = {
    **{row.name: row.declare for row in _products()},
    **{row.name: row.declare for row in _group_products()},
    **{row.name: row.declare for row in _loads()},
}
"""Name -> what declares the intrinsic."""
