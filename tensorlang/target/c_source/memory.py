"""Declarations of arrays, barriers, and accesses to several neighbouring elements at a time."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tensorlang import dtypes
from tensorlang.ir.expr import Buffer, Const
from tensorlang.target.c_source.dialect import Dialect
from tensorlang.target.c_source.scope import Scope, Storage

ALIGNMENT = 16
"""Bytes that arrays in global and shared memory start at a multiple of."""

SWIZZLED = 1024
"""Bytes that arrays start at a multiple of whose swizzle the hardware has to know."""

_CUDA_WIDE = {
    ("float", 16): "float4", ("float", 8): "float2", ("double", 16): "double2", ("long long", 16): "longlong2",
    ("unsigned long long", 16): "ulonglong2", ("int", 16): "int4", ("int", 8): "int2",
}  # fmt: skip
_CUDA_WORDS = {16: "uint4", 8: "uint2", 4: "unsigned int", 2: "unsigned short"}


def barrier(scope: Scope, reach: str = "block") -> str:
    """The line at which threads wait for each other."""
    if reach == "warp":
        return scope.dialect.warp_barrier
    if scope.fenced:
        return f"tl_fence_proxy_async(); {scope.dialect.barrier}"
    return scope.dialect.global_barrier if scope.writes_what_it_reads else scope.dialect.barrier


def elements(buffer: Buffer) -> int:
    """How many elements an array of constant shape has, at least one."""
    return max(1, prod(int(e.value) for e in buffer.shape if isinstance(e, Const)))


def size(buffer: Buffer) -> int:
    """The bytes of an array of constant shape."""
    return elements(buffer) * dtypes.info(buffer.dtype).bytes


def declaration(dialect: Dialect, buffer: Buffer, name: str) -> str:
    """An array of a thread, or, behind the word for it, of a block."""
    return f"{dialect.word(buffer.dtype)} {name}[{elements(buffer)}]"


def pieces(scope: Scope, storage: Storage, lanes: int, factors: Sequence[int]) -> int:
    """How many neighbouring elements one access can have; 1 where there is nothing wider.

    The first one is a multiple of each of `factors` elements away from the start of the array.
    """
    element_bytes = dtypes.info(storage.buffer.dtype).bytes
    width = min(lanes, scope.dialect.wide_bytes // element_bytes, 16)
    if storage.space == "local" or width < 2:
        return 1
    if not scope.dialect.aligned_accesses:
        return width
    while width > 1 and any(f % width for f in factors):
        width //= 2
    return width


def copy(scope: Scope, target: str, source: str, dtype: str, count: int, spaces: tuple[str, str]) -> str:
    """The statement that copies `count` neighbouring elements in one access each way; pointers as text.

    `spaces`: where the target and the source lie.
    """
    dialect = scope.dialect
    word = dialect.word(dtype)
    if not dialect.aligned_accesses:
        return f"vstore{count}(vload{count}(0, {source}), 0, {target});"
    if "global" in spaces:
        scope.text.wide_accesses = True
    bytes_ = dtypes.info(dtype).bytes * count
    wide = _CUDA_WIDE.get((word, bytes_)) or _CUDA_WORDS[bytes_]
    return f"*({wide} *){_operand(target)} = *(const {wide} *){_operand(source)};"


def lane_array(scope: Scope, dtype: str, name: str, lanes: int) -> str:
    """The declaration of a variable with an element for each lane."""
    dialect = scope.dialect
    aligned = dialect.align.format(bytes=min(ALIGNMENT, lanes * dtypes.info(dtype).bytes))
    prefix = f"{aligned} " if dialect.aligned_accesses else ""
    return f"{prefix}{dialect.word(dtype)} {name}[{lanes}];"


def _operand(pointer: str) -> str:
    return pointer if pointer.isidentifier() else f"({pointer})"
