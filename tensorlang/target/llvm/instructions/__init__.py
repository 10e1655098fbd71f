"""tensorlang's own intrinsics: CPU instructions that a schedule can name, `te.intrin("x86.avx512.vpdpbusd")`."""

from tensorlang.target.llvm.instructions import aarch64, x86
from tensorlang.target.llvm.instructions.families import Axpy, table
from tensorlang.target.llvm.instructions.tile_declaration import declare as declare_tiles
from tensorlang.target.llvm.instructions.tiles import (
    FEATURES,
    INSTRUCTIONS,
    MOST_COLUMNS,
    MOST_ROWS,
    ROWS,
    WORD,
    Tiles,
    tiles_of,
)

OWN = {**x86.TABLE, **aarch64.TABLE, **table(Axpy("fma.f32x16", "float32", 16), Axpy("fma.f32x8", "float32", 8))}
"""Name -> what declares the intrinsic."""

__all__ = [
    "FEATURES",
    "INSTRUCTIONS",
    "MOST_COLUMNS",
    "MOST_ROWS",
    "OWN",
    "ROWS",
    "WORD",
    "Tiles",
    "declare_tiles",
    "tiles_of",
]
