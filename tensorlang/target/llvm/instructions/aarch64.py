"""Instructions of AArch64 CPUs."""

from tensorlang.target.llvm.instructions.families import Dot, table

TABLE = table(
    Dot(
        "aarch64.neon.sdot",
        "llvm.aarch64.neon.sdot.v4i32.v16i8",
        "int8",
        "int8",
        "int32",
        lanes=4,
        group=4,
        architecture="aarch64",
        features=("dotprod",),
        packed=False,
        kernel_first=True,
    ),
    Dot(
        "aarch64.neon.udot",
        "llvm.aarch64.neon.udot.v4i32.v16i8",
        "uint8",
        "uint8",
        "int32",
        lanes=4,
        group=4,
        architecture="aarch64",
        features=("dotprod",),
        packed=False,
        kernel_first=True,
    ),
    Dot(
        "aarch64.neon.usdot",
        "llvm.aarch64.neon.usdot.v4i32.v16i8",
        "int8",
        "uint8",
        "int32",
        lanes=4,
        group=4,
        architecture="aarch64",
        features=("i8mm",),
        packed=False,
        kernel_first=True,
    ),
)
"""Name -> what declares it."""
