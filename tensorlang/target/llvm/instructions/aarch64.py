"""Instructions of AArch64 CPUs."""

from tensorlang.target.llvm.instructions.families import Dot, table


def _dot(name: str, data: str, kernel: str, feature: str) -> Dot:
    return Dot(
        f"aarch64.neon.{name}",
        f"llvm.aarch64.neon.{name}.v4i32.v16i8",
        data,
        kernel,
        "int32",
        lanes=4,
        group=4,
        architecture="aarch64",
        features=(feature,),
        packed=False,
        kernel_first=True,
    )


TABLE = table(
    _dot("sdot", "int8", "int8", "dotprod"),
    _dot("udot", "uint8", "uint8", "dotprod"),
    _dot("usdot", "int8", "uint8", "i8mm"),
)
"""Name -> what declares it."""
