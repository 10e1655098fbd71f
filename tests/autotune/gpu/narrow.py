"""Products of matrices as tensor cores compute them: of narrow elements, in batches, and in tf32."""

from __future__ import annotations

from tensorlang import te, topi


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


def batches(q: int, m: int, n: int, k: int, turned: int = 0) -> list[te.Tensor]:
    """The products of two batches of float16."""
    A = te.placeholder((q, m, k), "float16", name="A")
    B = te.placeholder((q, n, k) if turned else (q, k, n), "float16", name="B")
    return [A, B, topi.batch_matmul(A, B, out_dtype="float32", transpose_b=bool(turned))]


def across(m: int, n: int, k: int) -> list[te.Tensor]:
    """A product of float16 whose factors have rows and columns side by side."""
    A, B = te.placeholder((k, m), "float16", name="A"), te.placeholder((k, n), "float16", name="B")
    return [A, B, topi.matmul(A, B, transpose_a=True, out_dtype="float32")]


def tf32(m: int, n: int, k: int, across: int = 0, turned: int = 0) -> list[te.Tensor]:
    """A product of float32 that may be made in tf32; `across`: A is given as [k, m], `turned`: B as [n, k]."""
    A = te.placeholder((k, m) if across else (m, k), name="A")
    B = te.placeholder((n, k) if turned else (k, n), name="B")
    return [A, B, topi.matmul(A, B, bool(across), bool(turned), precision="tf32")]
