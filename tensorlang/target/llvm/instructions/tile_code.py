"""LLVM IR of a product of tiles: registers by number, one loop over the words of each row of the window."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tensorlang.target.llvm.instructions.tiles import INSTRUCTIONS, WORD, WORDS, Share, Tiles

_STRIDES = ("out_y", "out_x", "data_y", "data_x", "kernel_p", "kernel_q", "kernel_w")
_COLUMN = WORDS * WORD
"""The bytes of a row of a tile of sums, or of a panel."""
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


def function_text(tiles: Tiles, symbol: str) -> str:
    """The function `symbol(out, data, kernel, strides...)`, strides in elements, and those around it.

    It adds up all terms of each tile of sums in registers that are set up, and stores them.
    """
    code, label, instruction = _Code(), "entry", INSTRUCTIONS[tiles.data, tiles.kernel]
    strides = {n: code.scaled(f"%{n}", WORD if n.startswith("out") else tiles.size) for n in _STRIDES}
    for number, shares in enumerate(tiles.passes()):
        label = _emit_pass(code, tiles, instruction, strides, shares, number, label)
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


def _emit_pass(
    code: _Code, tiles: Tiles, instruction: str, strides: dict[str, str], shares: list[Share], number: int, label: str
) -> str:
    """Add up and store the sums of some shares, from a label on; return the label after it."""
    columns = tiles.panels
    along_x = tiles.rows[1] > 1
    row, step = ("x", tiles.right[0]) if along_x else ("y", tiles.down[0])
    data_row = code.scaled(strides[f"data_{row}"], step)
    sums = list(product(range(len(shares)), range(columns)))
    for share, column in sums:
        code.call("tilezero", _register(_sum(tiles, share, column)))
    rows = [
        code.moved("%data", (strides["data_y"], tiles.down[0] * y), (strides["data_x"], tiles.right[0] * x))
        for y, x, _ in shares
    ]
    for p, q in product(range(tiles.terms[0]), range(tiles.terms[1])):
        tap = (strides["data_y"], tiles.down[1] * p), (strides["data_x"], tiles.right[1] * q)
        data = [code.moved(start, *tap) for start in rows]
        kernel = code.moved("%kernel", (strides["kernel_p"], p), (strides["kernel_q"], q))
        name = f"{number}.{p}.{q}"
        code.lines += [f"  br label %tap{name}", f"tap{name}:"]
        code.lines.append(f"  %at{name} = phi i64 [0, %{label}], [%next{name}, %tap{name}]")
        panels = code.moved(kernel, (code.fresh(f"mul i64 %at{name}, {strides['kernel_w']}"), 1))
        places = [code.moved(start, (code.scaled(f"%at{name}", WORD), 1)) for start in data]
        _multiply(code, tiles, instruction, places, data_row, panels, strides["kernel_w"])
        code.lines += [
            f"  %next{name} = add i64 %at{name}, {tiles.step}",
            f"  %again{name} = icmp ult i64 %next{name}, {tiles.terms[2]}",
            f"  br i1 %again{name}, label %tap{name}, label %after{name}",
            f"after{name}:",
        ]
        label = f"after{name}"
    for share, column in sums:
        y, x, _ = shares[share]
        place = code.moved("%out", (strides["out_y"], y), (strides["out_x"], x), ("1", _COLUMN * column))
        held = _register(_sum(tiles, share, column))
        code.call("tilestored64", held, f"ptr {place}", f"i64 {strides[f'out_{row}']}")
    return label


def _multiply(
    code: _Code, tiles: Tiles, instruction: str, places: list[str], row: str, panels: str, panel_row: str
) -> None:
    """Tiles of data at some places by those of a panel."""
    columns = range(tiles.panels)
    for column in columns:
        panel = code.moved(panels, ("1", _COLUMN * column))
        code.call("tileloadd64", _register(_panel(tiles, column)), f"ptr {panel}", f"i64 {panel_row}")
    for share, place in enumerate(places):
        held = _register(_data(tiles, share))
        code.call("tileloadd64", held, f"ptr {place}", f"i64 {row}")
        for column in columns:
            code.call(instruction, _register(_sum(tiles, share, column)), held, _register(_panel(tiles, column)))


def _sum(tiles: Tiles, share: int, column: int) -> int:
    """The register of a tile of sums: 0 to 3, or 0 to 5 where data take turns."""
    return share if tiles.in_turn else 2 * share + column


def _data(tiles: Tiles, share: int) -> int:
    return 6 if tiles.in_turn else 4 + share


def _panel(tiles: Tiles, column: int) -> int:
    return 7 if tiles.in_turn else 6 + column


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
    columns = range(tiles.panels)
    for share, (_, _, rows) in enumerate(tiles.passes()[0]):
        yield _data(tiles, share), rows, tiles.step * WORD
        for column in columns:
            yield _sum(tiles, share, column), rows, _COLUMN
    for column in columns:
        yield _panel(tiles, column), tiles.step, _COLUMN
