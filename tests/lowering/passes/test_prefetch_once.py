"""What was prefetched in the same iteration is not again."""

from __future__ import annotations

from tensorlang.ir.construct import array, indices, kernel, loop, store
from tensorlang.ir.printer import stmt_text
from tensorlang.ir.stmt import If, Prefetch, Seq
from tensorlang.lowering.passes.prefetch_once import prefetch_once

i, j, n = indices("i j n")
A, C = array("A", (n,)), array("C", (n,))
ONE, AT = store(C, i, 1.0), Prefetch(A, (i,))


def test_only_places_that_were_reached_before() -> None:
    body = Seq((If(n > 3, AT), AT, ONE, AT, loop(j, 0, n, Seq((AT, Prefetch(A, (j,)), Prefetch(A, (i,), 2)))), AT))
    made = prefetch_once(kernel("k", [A, C], "A C", loop(i, 0, n, Seq((body, AT))), [n]))
    assert stmt_text(made.body) == (
        "for i in range(n):\n"
        "  if n > 3:\n"
        "    prefetch A[i]\n"
        "  prefetch A[i]\n"
        "  C[i] = 1.0\n"
        "  for j in range(n):\n"
        "    prefetch A[j]\n"
        "    prefetch A[i] into cache 2"
    )
