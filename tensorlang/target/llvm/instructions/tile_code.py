"""LLVM IR of a product of tiles: registers by number, one loop over the words of each row of the window."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorlang.target.llvm.instructions.tiles import Tiles

_STRIDES = ("out_y", "out_x", "data_y", "data_x", "kernel_p", "kernel_q", "kernel_w")
_WORD = 4
_COLUMN = 64
"""The bytes of a row of a tile of sums, or of a panel."""
_FIRST_DATA, _FIRST_PANEL = 4, 6
_CALLED = {
    "ldtilecfg": "ptr",
    "tilerelease": "",
    "tilezero": "i8",
    "tileloadd64": "i8, ptr, i64",
    "tilestored64": "i8, ptr, i64",
}


class _Code:
    """The lines of a function, and names for its values."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0

    def fresh(self, text: str) -> str:
        """A name for the value of an instruction."""
        self._count += 1
        self.lines.append(f"  %v{self._count} = {text}")
        return f"%v{self._count}"

    def call(self, name: str, *operands: str) -> None:
        self.lines.append(f"  call void @llvm.x86.{name}({', '.join(operands)})")

    def scaled(self, value: str, by: int) -> str:
        return value if by == 1 else self.fresh(f"mul i64 {value}, {by}")

    def moved(self, pointer: str, *steps: tuple[str, int]) -> str:
        """A pointer so many strides further on."""
        for stride, count in steps:
            if count:
                pointer = self.fresh(f"getelementptr i8, ptr {pointer}, i64 {self.scaled(stride, count)}")
        return pointer


def around(symbol: str) -> tuple[str, str]:
    """The functions that set up the registers for that of a product, and give them back."""
    return f"{symbol}.enter", f"{symbol}.leave"


def function_text(tiles: Tiles, symbol: str, instruction: str) -> str:
    """The function `symbol(out, data, kernel, strides...)`, strides in elements, and those around it.

    It adds up all terms of each tile of sums in registers that are set up, and stores them.
    """
    code = _Code()
    columns = tiles.columns * _WORD // _COLUMN
    stride = {n: code.scaled(f"%{n}", _WORD if n.startswith("out") else tiles.size) for n in _STRIDES}
    along_x = tiles.rows[1] > 1
    row, step = ("x", tiles.right[0]) if along_x else ("y", tiles.down[0])
    data_row = code.scaled(stride[f"data_{row}"], step)
    sums = list(product(range(len(tiles.shares())), range(columns)))
    for share, column in sums:
        code.call("tilezero", _register(_sum(share, column)))
    _add_terms(code, tiles, instruction, stride, data_row)
    for share, column in sums:
        y, x, _ = tiles.shares()[share]
        place = code.moved("%out", (stride["out_y"], y), (stride["out_x"], x), ("1", _COLUMN * column))
        code.call("tilestored64", _register(_sum(share, column)), f"ptr {place}", f"i64 {stride[f'out_{row}']}")
    called = {**_CALLED, instruction: "i8, i8, i8"}
    enter, leave = around(symbol)
    parameters = ", ".join(["ptr %out", "ptr %data", "ptr %kernel", *(f"i64 %{name}" for name in _STRIDES)])
    return "\n".join(
        [
            f"@config = internal constant [64 x i8] [{', '.join(f'i8 {byte}' for byte in _config(tiles))}], align 64",
            *(f"declare void @llvm.x86.{name}({operands})" for name, operands in called.items()),
            *_function(enter, "", ["  call void @llvm.x86.ldtilecfg(ptr @config)"]),
            *_function(leave, "", ["  call void @llvm.x86.tilerelease()"]),
            *_function(symbol, parameters, code.lines),
            'attributes #0 = { nounwind "target-features"="+amx-tile,+amx-int8,+amx-bf16" }',
        ]
    )


def _function(symbol: str, parameters: str, lines: list[str]) -> list[str]:
    return [f"define void @{symbol}({parameters}) #0 {{", "entry:", *lines, "  ret void", "}"]


def _add_terms(code: _Code, tiles: Tiles, instruction: str, stride: dict[str, str], data_row: str) -> None:
    """For each place of the window a loop over its words."""
    columns, label = tiles.columns * _WORD // _COLUMN, "entry"
    rows = [
        code.moved("%data", (stride["data_y"], tiles.down[0] * y), (stride["data_x"], tiles.right[0] * x))
        for y, x, _ in tiles.shares()
    ]
    for p, q in product(range(tiles.terms[0]), range(tiles.terms[1])):
        tap = (stride["data_y"], tiles.down[1] * p), (stride["data_x"], tiles.right[1] * q)
        data = [code.moved(row, *tap) for row in rows]
        first = code.moved("%kernel", (stride["kernel_p"], p), (stride["kernel_q"], q))
        before, label = label, f"tap{p}.{q}"
        code.lines += [f"  br label %{label}", f"{label}:"]
        code.lines.append(f"  %at{p}.{q} = phi i64 [0, %{before}], [%next{p}.{q}, %{label}]")
        kernel = code.moved(first, (code.fresh(f"mul i64 %at{p}.{q}, {stride['kernel_w']}"), 1))
        word = code.scaled(f"%at{p}.{q}", _WORD)
        for column in range(columns):
            panel = code.moved(kernel, ("1", _COLUMN * column))
            code.call("tileloadd64", _register(_FIRST_PANEL + column), f"ptr {panel}", f"i64 {stride['kernel_w']}")
        for share, start in enumerate(data):
            held = _register(_FIRST_DATA + share)
            code.call("tileloadd64", held, f"ptr {code.moved(start, (word, 1))}", f"i64 {data_row}")
            for column in range(columns):
                code.call(instruction, _register(_sum(share, column)), held, _register(_FIRST_PANEL + column))
        code.lines += [
            f"  %next{p}.{q} = add i64 %at{p}.{q}, {tiles.step}",
            f"  %again{p}.{q} = icmp ult i64 %next{p}.{q}, {tiles.terms[2]}",
            f"  br i1 %again{p}.{q}, label %{label}, label %after{p}.{q}",
            f"after{p}.{q}:",
        ]
        label = f"after{p}.{q}"


def _sum(share: int, column: int) -> int:
    """The register of a tile of sums."""
    return 2 * share + column


def _register(number: int) -> str:
    return f"i8 {number}"


def _config(tiles: Tiles) -> bytes:
    """The rows and the bytes of a row of each register, as ldtilecfg takes them (palette 1)."""
    made = bytearray(64)
    made[0] = 1
    for number, rows, wide in _shapes(tiles):
        made[16 + 2 * number], made[48 + number] = wide, rows
    return bytes(made)


def _shapes(tiles: Tiles) -> Iterator[tuple[int, int, int]]:
    columns = range(tiles.columns * _WORD // _COLUMN)
    for share, (_, _, rows) in enumerate(tiles.shares()):
        yield _FIRST_DATA + share, rows, tiles.step * _WORD
        for column in columns:
            yield _sum(share, column), rows, _COLUMN
    for column in columns:
        yield _FIRST_PANEL + column, tiles.step, _COLUMN
