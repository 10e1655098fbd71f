"""Matrix instructions of one warp: mma.sync, and the loads and stores of its fragments through shared memory.

PTX ISA, "Warp level matrix instructions". Which element each lane holds is in `tensorlang.target.cuda.fragments`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorlang.target.c_source.ptx import Intrinsic, assembly, operands, places, shared

_MMA = (
    ("m16n8k16", "f32", "bf16", "sm_80"),
    ("m16n8k16", "f32", "f16", "sm_80"),
    ("m16n8k16", "f16", "f16", "sm_80"),
    ("m16n8k8", "f32", "tf32", "sm_80"),
    ("m16n8k32", "s32", "s8", "sm_80"),
    ("m16n8k32", "s32", "u8", "sm_80"),
    ("m16n8k32", "f32", "e4m3", "sm_89"),
    ("m16n8k32", "f32", "e5m2", "sm_89"),
)
"""Shape, accumulator and operands of a product, and the lowest architecture."""

_ACCUMULATORS = {"f32": ("float", "f", 4), "s32": ("int", "r", 4), "f16": ("unsigned", "r", 2)}
"""C type, letter of the assembly's operand and registers of an accumulator."""


def warp_matrix_rows() -> Iterator[Intrinsic]:
    """Yield the matrix instructions of a warp."""
    for shape, accumulator, element, architecture in _MMA:
        yield _mma(shape, accumulator, element, architecture)
    for count in (1, 2, 4):
        yield _ldmatrix(count, transposed=False)
        yield _ldmatrix(count, transposed=True)
    for count in (1, 2, 4):
        yield _stmatrix(count, transposed=False)
        yield _stmatrix(count, transposed=True)


def _mma(shape: str, accumulator: str, element: str, architecture: str) -> Intrinsic:
    kind, letter, count = _ACCUMULATORS[accumulator]
    mnemonic = f"mma.sync.aligned.{shape}.row.col.{accumulator}.{element}.{element}.{accumulator}"
    c, a, b = places(0, count), places(count, 4), places(count + 4, 2)
    slow = "; sm_90 and sm_100 make it of f16 products" if element in ("e4m3", "e5m2") else ""
    return Intrinsic(
        name=f"tl_mma_{shape}_{accumulator}_{element}",
        parameters=((f"{kind}*", "c"), ("const unsigned*", "a"), ("const unsigned*", "b")),
        body=assembly(
            f"{mnemonic} {c}, {a}, {b}, {c};",
            operands(f"+{letter}", "c", count),
            [*operands("r", "a", 4), *operands("r", "b", 2)],
            memory=False,
        ),
        architecture=architecture,
        meaning=f"c += a b over one {shape} tile of {element}, c in {accumulator}, by a whole warp{slow}",
        mnemonic=mnemonic,
    )


def _ldmatrix(count: int, *, transposed: bool) -> Intrinsic:
    mnemonic = f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if transposed else ''}.shared.b16"
    turned = ", each transposed," if transposed else ""
    return Intrinsic(
        name=f"tl_ldmatrix_x{count}{'_trans' if transposed else ''}",
        parameters=(("unsigned*", "r"), ("const void*", "row")),
        body=assembly(
            f"{mnemonic} {places(0, count)}, [%{count}];",
            operands("=r", "r", count),
            [shared("row")],
        ),
        architecture="sm_75",
        meaning=f"load {count} matrices of 8 rows of 16 bytes{turned} from shared memory; lane l gives the address of "
        "row l % 8 of matrix l / 8",
        mnemonic=mnemonic,
    )


def _stmatrix(count: int, *, transposed: bool) -> Intrinsic:
    mnemonic = f"stmatrix.sync.aligned.m8n8.x{count}{'.trans' if transposed else ''}.shared.b16"
    turned = ", each transposed," if transposed else ""
    return Intrinsic(
        name=f"tl_stmatrix_x{count}{'_trans' if transposed else ''}",
        parameters=(("void*", "row"), ("const unsigned*", "r")),
        body=assembly(f"{mnemonic} [%0], {places(1, count)};", (), [shared("row"), *operands("r", "r", count)]),
        architecture="sm_90",
        meaning=f"store {count} matrices of 8 rows of 16 bytes{turned} to shared memory; addresses as for ldmatrix",
        mnemonic=mnemonic,
    )
