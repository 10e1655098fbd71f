"""A product of matrices of narrow elements, as tensor cores compute it."""

from __future__ import annotations

from tensorlang import te


def product(m: int, n: int, k: int, dtype: str = "bfloat16", turned: int = 0) -> list[te.Tensor]:
    """The positive elements of A B, or of A and B transposed, in sums of 32 bits."""
    total = "int32" if dtype == "int8" else "float32"
    A = te.placeholder((m, k), dtype, name="A")
    B = te.placeholder((n, k) if turned else (k, n), dtype, name="B")
    r = te.reduce_axis((0, k), name="r")

    def element(i: te.Expr, j: te.Expr) -> te.Expr:
        right = B[j, r] if turned else B[r, j]
        return te.sum(A[i, r].astype(total) * right.astype(total), axis=r)

    C = te.compute((m, n), element, name="C")
    return [A, B, te.compute((m, n), lambda i, j: te.max(C[i, j], te.const(0, total)), name="R")]
