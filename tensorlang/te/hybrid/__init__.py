"""Scripts: Python functions of loops and assignments, read as tensor programs.

    @te.hybrid.script
    def prefix_sum(A):
        B = te.output_tensor(A.shape, A.dtype)
        for i in range(len(A)):
            B[i] = A[i] + (B[i - 1] if i > 0 else 0)
        return B

Loop variables, sizes and literals are numbers of Python's: beside an element of an array they take its dtype.
"""

from tensorlang.te.hybrid.script import Script, script
from tensorlang.te.hybrid.source import ScriptError
from tensorlang.te.hybrid.words import (
    allocate,
    bind,
    const_range,
    output_tensor,
    parallel,
    serial,
    unroll,
    vectorize,
)

__all__ = [
    "Script",
    "ScriptError",
    "allocate",
    "bind",
    "const_range",
    "output_tensor",
    "parallel",
    "script",
    "serial",
    "unroll",
    "vectorize",
]
