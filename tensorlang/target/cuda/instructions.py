"""The matrix instructions of CUDA as intrinsics that a schedule can name: `te.intrin("cuda.mma.m16n8k16.bf16")`.

Operands lie in the registers of a warp (scope `warp`), where ldmatrix brings them from shared memory. `bt` in a name
says that the right operand is there as [n][k], else it is [k][n]; `at` that the left one is [k][m], else it is [m][k].
Products of warp groups (wgmma) take their operands from shared memory instead, in swizzled rows of 128 bytes, of k or
in panels. Products of float32 are made of tf32 numbers, to which ldmatrix rounds; with `cut` in the name it leaves that
to the product, which drops the low bits.

Sums of `cuda.mma.m16n8k16.f16.f16` are float16: each instruction rounds them, and how it adds its 16 products is the
hardware's (PTX: at least in half precision, in no order that is told). What is promised is what sums in float16 are
promised anywhere, the tolerance of `te.reference`. `cuda.stmatrix`: `tensorlang.target.cuda.matrix_stores`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Expr, cast
from tensorlang.ir.fragment import Fragment
from tensorlang.ir.machine import ACCUMULATES, ASYNC_PROXY, LANE, Pointer
from tensorlang.ir.simplify import simplify
from tensorlang.ir.stmt import Stmt
from tensorlang.target.cuda.fragments import (
    A_COLUMNS,
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
from tensorlang.target.cuda.matrix_stores import matrix_stores
from tensorlang.target.cuda.wgmma import WIDTHS
from tensorlang.te.define import compute, placeholder
from tensorlang.te.domain import reduce_axis, size_var
from tensorlang.te.intrinsic import TensorIntrin
from tensorlang.te.machine import call_extern, stmt_seq
from tensorlang.te.operation import Tensor
from tensorlang.te.reductions import sum_
from tensorlang.te.tensor_intrin import decl_tensor_intrin
from tensorlang.te.tile_buffer import TileBuffer, decl_buffer

DTYPES = {"bf16": "bfloat16", "f16": "float16", "tf32": "float32", "s8": "int8", "u8": "uint8"} | {
    "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"
}  # fmt: skip
"""The elements of operands, by their names in PTX."""

_ACCUMULATORS = {"f32": "float32", "s32": "int32", "f16": "float16"}
_C_TYPES = {"float32": "float", "int32": "int", "float16": "unsigned"}
_ROW = 128  # bytes of k that a product of a warp group takes
_PANEL = 64 * _ROW  # bytes of a panel of 64 rows of k, of 16-bit elements
_QUALIFIERS = "__device__ __forceinline__ void"


@dataclass(frozen=True, slots=True)
class Product:
    """`c[i, j] += sum over k of a[i, k] * b[k, j]` by one mma.sync; `turned`: b is read as b[j, k].

    `a_turned`: a is read as a[k, i].
    """

    element: str
    accumulator: str
    turned: bool
    a_turned: bool = False

    @property
    def name(self) -> str:
        """What te.intrin knows it by."""
        of = warp_multiply(self.element, self.accumulator)
        sums = ".f16" if self.accumulator == "f16" else ""
        return f"cuda.mma.m{of.m}n{of.n}k{of.k}.{self.element}{sums}{_turns(self.a_turned, self.turned)}"

    def declare(self) -> TensorIntrin:
        """Declare the instruction as an intrinsic."""
        of = warp_multiply(self.element, self.accumulator)
        assert of.b is not None
        dtype, total = DTYPES[self.element], _ACCUMULATORS[self.accumulator]
        a, b, c = _matrices((of.m, of.n, of.k), dtype, total, self.a_turned, self.turned)
        held = {a: of.a.transposed if self.a_turned else of.a, b: of.b.transposed if self.turned else of.b, c: of.c}
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
    """`c[i, j] += sum over k of a[i, k] * b[k, j]`, 64 by `columns` by 128 bytes of k, by the wgmma of 128 threads.

    `turned`: b is read as b[j, k]; `a_turned`: a as a[k, i]. Rows along k have 128 bytes; others lie in panels. With a
    `held` in the registers of the group, b as [k, j] may have as much k as `rows` of 128 bytes. The products are only
    begun: threads wait for their group later. What they wrote to shared memory before is fenced where they wait for
    each other.
    """

    element: str
    accumulator: str
    columns: int
    turned: bool = True
    a_turned: bool = False
    held: bool = False
    rows: int = 1

    @property
    def name(self) -> str:
        """What te.intrin knows it by."""
        turns = ".ra" * self.held + _turns(self.a_turned, self.turned)
        return f"cuda.wgmma.m64n{self.columns}k{self._depth}.{self.element}{turns}"

    @property
    def _depth(self) -> int:
        return self.rows * _ROW // dtypes.info(DTYPES[self.element]).bytes

    def declare(self) -> TensorIntrin:
        """Declare the instruction as an intrinsic."""
        of, depth = group_multiply(self.element, self.columns, self.accumulator), self._depth
        dtype, total = DTYPES[self.element], _ACCUMULATORS[self.accumulator]
        a, b, c = _matrices((of.m, of.n, depth), dtype, total, self.a_turned, self.turned)
        product = of.name + "_ra" * self.held + "_km" * self.a_turned + "_kn" * (not self.turned)
        kind, zero = _C_TYPES[total], f"tl_zero_{self.accumulator}x{of.c.registers}"
        function = f"{product}_row" + f"s{self.rows}" * (self.rows > 1)
        called = ("tl_wgmma_descriptor", "tl_wgmma_fence", "tl_wgmma_commit", "tl_wgmma_wait", "tl_fence_proxy_async")
        row = _row_of_products(product, function, kind, self)
        parts = (*(INTRINSICS[name].text for name in (product, *called)), row)

        def statements(ins: list[TileBuffer], outs: list[TileBuffer]) -> tuple[Stmt, Stmt, Stmt]:
            operands = (tile.access_ptr("r") for tile in ins)
            add = call_extern("void", function, outs[0].access_ptr("rw"), *operands, ACCUMULATES)
            clear = call_extern("void", zero, outs[0].access_ptr("w"))
            return stmt_seq(clear, add), stmt_seq(clear), stmt_seq(add)

        left = _in_registers(a.shape, dtype, "a", of.a) if self.held else _rows(a, panels=self.a_turned)
        tiles = {a: left, b: _rows(b, panels=not self.turned)}
        return decl_tensor_intrin(
            c.op,
            statements,
            self.name,
            {**tiles, c: _in_registers(c.shape, total, "c", of.c)},
            architecture="cuda",
            features=(INTRINSICS[product].architecture, ASYNC_PROXY),
            source=_joined(*parts, _zero(zero, kind, of.c.registers)),
            lanes=GROUP,
            group="tl_wgmma",
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
        shared = decl_buffer(
            tile.shape, dtype, "tile", strides=[size_var("row"), 1], offset_factor=chunk, scope="shared"
        )
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
    held: TileBuffer = decl_buffer(shape, dtype, name, scope="warp", fragment=fragment)
    return held


def _joined(*texts: str) -> str:
    """Definitions as they stand in a source: with an empty line between."""
    return "\n\n".join(text.strip() for text in texts)


def _zero(name: str, kind: str, count: int) -> str:
    return f"{_QUALIFIERS} {name}({kind}* c) {{\n#pragma unroll\n  for (int k = 0; k < {count}; ++k) c[k] = 0;\n}}"


def _turns(a_turned: bool, b_turned: bool) -> str:
    return ".at" * a_turned + ".bt" * b_turned


def _matrices(
    sides: tuple[int, int, int], dtype: str, total: str, a_turned: bool, b_turned: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """What a product declares: its operands, turned or not, and their product, with rows, columns and k of `sides`."""
    m, n, depth = sides
    a = placeholder((depth, m) if a_turned else (m, depth), dtype, "a")
    b = placeholder((n, depth) if b_turned else (depth, n), dtype, "b")
    k = reduce_axis((0, depth), "k")

    def element(i: Any, j: Any) -> Expr:
        left, right = a[k, i] if a_turned else a[i, k], b[j, k] if b_turned else b[k, j]
        return sum_(cast(left, total) * cast(right, total), axis=k)

    return a, b, compute((m, n), element, name="c")


def _rows(tensor: Tensor, panels: bool) -> TileBuffer:
    """An operand in shared memory: rows of 128 bytes, or panels of such, from a multiple of eight of them on."""
    row = _ROW // dtypes.info(tensor.dtype).bytes
    strides, apart = ([size_var(f"{tensor.op.name}_row"), 1], row) if panels else (None, 8 * row)
    held: TileBuffer = decl_buffer(
        tensor.shape, tensor.dtype, tensor.name, None, strides, scope="shared", offset_factor=apart
    )
    return replace(held, swizzled=True, panels=panels)


def _row_of_products(name: str, own: str, kind: str, of: GroupProduct) -> str:
    """Begin the products along rows of 128 bytes of k, four each; the first one adds to what is there if it is told to.

    The next 32 bytes of k are as many further on in rows along k, and 16 rows of 128 bytes further on in others. There,
    what lies beside 64 columns is a panel further on. In registers they are the next four.
    """
    apart = {False: 32 // 16, True: 16 * _ROW // 16}  # in units of 16 bytes
    panel = of.rows * _PANEL
    left = f"const unsigned long long left = tl_wgmma_descriptor(a, {panel if of.a_turned else 16}, 1024, 1);"
    a = "a + 4 * k" if of.held else f"left + {apart[of.a_turned]} * k"
    lines = [
        *(() if of.held else (left,)),
        f"const unsigned long long right = tl_wgmma_descriptor(b, {16 if of.turned else panel}, 1024, 1);",
        "tl_wgmma_fence();",
        "#pragma unroll",
        f"for (int k = 0; k < {4 * of.rows}; ++k) {name}(d, {a}, right + {apart[not of.turned]} * k, "
        "k > 0 || accumulates);",
    ]
    body = "\n".join(f"  {line}" for line in lines)
    first = "unsigned" if of.held else "void"
    return f"{_QUALIFIERS} {own}({kind}* d, const {first}* a, const void* b, int accumulates) {{\n{body}\n}}"


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
    found.append(Product("f16", "f16", turned=True))
    found += [replace(p, turned=False) for p in found]
    return found + [replace(p, a_turned=True) for p in found if PACKED[p.element] == 2]


def _group_products() -> list[GroupProduct]:
    found = [(e, "s32" if e in ("s8", "u8") else "f32") for e in DTYPES if e != "tf32"]
    made = [GroupProduct(e, total, columns) for e, total in found for columns in WIDTHS]
    halves = [p for p in made if PACKED[p.element] == 2]
    turns = ((False, False), (False, True), (True, True))
    held = [replace(p, held=True) for p in halves]
    held += [replace(p, turned=False, rows=rows) for p in held for rows in (1, 2)]
    return made + [replace(p, turned=b, a_turned=a) for b, a in turns for p in halves] + held


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
            found.append(MatrixLoad(f"cuda.ldmatrix.at.{element}", element, A_COLUMNS, of.a.transposed, (of.k, 16)))
    return found


TABLE: dict[str, Callable[[], TensorIntrin]] = {
    **{row.name: row.declare for row in _products()},
    **{row.name: row.declare for row in _group_products()},
    **{row.name: row.declare for row in _loads()},
    **{row.name: row.declare for row in matrix_stores()},
}
"""Name -> what declares the intrinsic."""
