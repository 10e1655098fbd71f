"""Matrix instructions of a group of 128 threads (sm_90a): wgmma, and the registers that the warps give each other.

A comes from shared memory, or from registers (names in `_ra`); B from shared memory, where rows lie along k, or along n
(names in `_kn`, 16-bit elements only), as rows of A may lie along m (`_km`). Descriptors are made by
`tensorlang.target.cuda.swizzle`. PTX ISA, "Asynchronous warpgroup level matrix instructions".
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorlang.dataclass import dataclass
from tensorlang.target.c_source.ptx import Intrinsic, assembly, operands, places, shared

WIDTHS = (64, 128, 192, 256)
"""Columns of the products in the table."""

ARCHITECTURE = "sm_90a"


@dataclass(frozen=True, slots=True)
class _Product:
    """What is multiplied: `k` elements at a time. `scales`, `turns`: immediates of signs and of transposition."""

    element: str
    accumulator: str
    k: int
    scales: bool = True
    turns: bool = False


_PRODUCTS = (
    _Product("bf16", "f32", 16, turns=True),
    _Product("f16", "f32", 16, turns=True),
    _Product("tf32", "f32", 8),
    _Product("e4m3", "f32", 32),
    _Product("e5m2", "f32", 32),
    _Product("s8", "s32", 32, scales=False),
    _Product("u8", "s32", 32, scales=False),
)


def wgmma_rows() -> Iterator[Intrinsic]:
    """Yield the products of warp groups, their synchronisation, their descriptors and setmaxnreg."""
    for product in _PRODUCTS:
        for width in WIDTHS:
            for registers in (False, True):
                yield _wgmma(product, width, registers=registers, rows_along_n=False)
                if product.turns:
                    yield _wgmma(product, width, registers=registers, rows_along_n=True)
            if product.turns:
                for rows_along_n in (False, True):
                    yield _wgmma(product, width, registers=False, rows_along_n=rows_along_n, rows_along_m=True)
    yield _synchronisation("fence", "wgmma.fence.sync.aligned", "registers and shared memory written before are seen")
    yield _synchronisation("commit", "wgmma.commit_group.sync.aligned", "close the group of products begun before")
    wait = "wgmma.wait_group.sync.aligned"
    yield Intrinsic(
        name="tl_wgmma_wait",
        parameters=(),
        body=assembly(f"{wait} %0;", (), ['"n"(PENDING)']),
        architecture=ARCHITECTURE,
        meaning="wait until at most PENDING groups of products are under way",
        mnemonic=wait,
        template="PENDING",
    )
    yield _descriptor()
    for change, meaning in (("inc", "take"), ("dec", "give back")):
        mnemonic = f"setmaxnreg.{change}.sync.aligned.u32"
        yield Intrinsic(
            name=f"tl_setmaxnreg_{change}",
            parameters=(),
            body=assembly(f"{mnemonic} %0;", (), ['"n"(REGISTERS)']),
            architecture=ARCHITECTURE,
            meaning=f"{meaning} registers until each thread of the group has REGISTERS; needs __launch_bounds__",
            mnemonic=mnemonic,
            template="REGISTERS",
        )


def _wgmma(
    product: _Product, width: int, *, registers: bool, rows_along_n: bool, rows_along_m: bool = False
) -> Intrinsic:
    kind, letter = ("float", "f") if product.accumulator == "f32" else ("int", "r")
    count = width // 2
    shape = f"m64n{width}k{product.k}"
    mnemonic = f"wgmma.mma_async.sync.aligned.{shape}.{product.accumulator}.{product.element}.{product.element}"
    left = operands("r", "a", 4) if registers else ['"l"(a)']
    flag = count + len(left) + 1
    a = places(count, 4) if registers else f"%{count}"
    line = f"{mnemonic} {places(0, count)}, {a}, %{flag - 1}, p"
    line += ", 1, 1" if product.scales else ""
    if product.turns:
        line += f"{'' if registers else f', {int(rows_along_m)}'}, {int(rows_along_n)}"
    source = "registers" if registers else f"shared memory{' as k rows along m' * rows_along_m}"
    b = "k rows along n" if rows_along_n else "n rows along k"
    return Intrinsic(
        name=f"tl_wgmma_{shape}_{product.accumulator}_{product.element}"
        f"{'_ra' if registers else ''}{'_km' if rows_along_m else ''}{'_kn' if rows_along_n else ''}",
        parameters=(
            (f"{kind}*", "d"),
            ("const unsigned*" if registers else "unsigned long long", "a"),
            ("unsigned long long", "b"),
            ("int", "accumulate"),
        ),
        body=assembly(
            ["{", ".reg .pred p;", f"setp.ne.b32 p, %{flag}, 0;", f"{line};", "}"],
            operands(f"+{letter}", "d", count),
            [*left, '"l"(b)', '"r"(accumulate)'],
            memory=False,
        ),
        architecture=ARCHITECTURE,
        meaning=f"begin d = a b, plus d where accumulate is not 0: {shape} of {product.element}, A from {source}, B "
        f"by descriptor as {b}",
        mnemonic=mnemonic,
    )


def _synchronisation(name: str, mnemonic: str, meaning: str) -> Intrinsic:
    return Intrinsic(f"tl_wgmma_{name}", (), assembly(f"{mnemonic};"), ARCHITECTURE, meaning, mnemonic)


def _descriptor() -> Intrinsic:
    address = shared("tile").removeprefix('"r"(').removesuffix(")")
    body = (
        f"unsigned long long address = {address} & 0x3FFFF;\n"
        "return address >> 4 | (unsigned long long)(leading >> 4) << 16 | (unsigned long long)(stride >> 4) << 32"
        " | (unsigned long long)swizzle << 62;"
    )
    return Intrinsic(
        name="tl_wgmma_descriptor",
        parameters=(("const void*", "tile"), ("int", "leading"), ("int", "stride"), ("int", "swizzle")),
        body=body,
        architecture="sm_75",
        meaning="the descriptor of a tile in shared memory: bytes from one atom to the next along its rows "
        "(leading) and across them (stride); swizzle 0 none, 1 128 bytes, 2 64 bytes, 3 32 bytes",
        mnemonic="",
        result="unsigned long long",
    )
