"""Which buffers share memory: those that never hold values at the same time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from tensorlang.ir.construct import array, indices, load, loop, store
from tensorlang.ir.expr import Buffer
from tensorlang.ir.stmt import Allocate, For, If, Kernel, Let, LoopKind, Seq, Stmt
from tensorlang.runtime.executable import Executable
from tensorlang.target.llvm.storage.frame import plan_frame
from tensorlang.target.llvm.storage.liveness import lives

Compile = Callable[..., Executable]
i, j, n, t = indices("i j n t")
A, B, C, D = (array(name, (64,)) for name in "ABCD")
IN, OUT = array("in", (64,)), array("out", (64,))


def _copy(target: Buffer, source: Buffer) -> For:
    return loop(i, 0, 64, store(target, i, load(source, i) + 1.0))


def _allocated(body: Stmt, *buffers: Buffer) -> Stmt:
    for buffer in buffers:
        body = Allocate(buffer, body)
    return body


def _slots(body: Stmt) -> list[list[str]]:
    return sorted([b.name for b in slot.buffers] for slot in plan_frame(body, in_parallel=False).scratch)


CHAIN = Seq((_copy(A, IN), _copy(B, A), _copy(C, B), _copy(D, C), _copy(OUT, D)))
CASES: dict[str, tuple[Stmt, list[list[str]]]] = {
    "a chain needs two": (_allocated(CHAIN, A, B, C, D), [["A", "C"], ["B", "D"]]),
    "a loop around keeps all": (_allocated(loop(j, 0, 3, CHAIN), A, B, C, D), [["A"], ["B"], ["C"], ["D"]]),
    "a loop around, new in each turn": (loop(j, 0, 3, _allocated(CHAIN, A, B, C, D)), [["A", "C"], ["B", "D"]]),
    "read again at the end": (
        _allocated(Seq((_copy(A, IN), _copy(B, A), _copy(C, B), _copy(OUT, C), _copy(OUT, A))), A, B, C),
        [["A"], ["B"], ["C"]],
    ),
    "read by a condition": (
        _allocated(Seq((_copy(A, IN), _copy(B, IN), If(load(A, 0) > 0.0, _copy(OUT, B)))), A, B),
        [["A"], ["B"]],
    ),
    "read by a Let, and dead in its body": (
        _allocated(Seq((_copy(A, IN), Let(t, load(A, 0), _allocated(Seq((_copy(B, IN), _copy(OUT, B))), B)))), A),
        [["A", "B"]],
    ),
    "two branches": (
        If(
            load(IN, 0) > 0.0,
            _allocated(Seq((_copy(A, IN), _copy(OUT, A))), A),
            _allocated(Seq((_copy(B, IN), _copy(OUT, B))), B),
        ),
        [["A", "B"]],
    ),
    "never read": (_allocated(_copy(OUT, IN), A), [["A"]]),
}


@pytest.mark.parametrize("name", CASES)
def test_which_share(name: str) -> None:
    body, expected = CASES[name]
    assert _slots(body) == expected


def test_a_buffer_allocated_twice_lives_through_both() -> None:
    piece = _allocated(Seq((_copy(A, IN), _copy(OUT, A))), A)
    between = _allocated(Seq((_copy(B, IN), _copy(OUT, B))), B)
    assert _slots(Seq((piece, between, piece))) == [["A"], ["B"]]
    span = lives(Seq((piece, between, piece)))
    assert span["A"][0] < span["B"][0] < span["B"][1] < span["A"][1]


def test_sizes_that_differ() -> None:
    large, small, other = array("large", (1000,)), array("small", (10,)), array("other", (900,))
    body = Seq((store(small, 0, 1.0), store(large, 0, 1.0), store(other, 0, 1.0)))
    frame = plan_frame(_allocated(body, large, small, other), in_parallel=False)
    assert [[b.name for b in slot.buffers] for slot in frame.scratch] == [["small", "large", "other"]]
    assert frame.scratch_bytes({}) == 4032


def test_unknown_sizes_share_with_their_like_only() -> None:
    a, b, c = array("a", (n,)), array("b", (n,)), array("c", (n + 1,))
    body = Seq((store(a, 0, 1.0), store(b, 0, 1.0), store(c, 0, 1.0), store(A, 0, 1.0)))
    assert _slots(_allocated(body, a, b, c, A)) == [["A"], ["a", "b"], ["c"]]


@pytest.mark.parametrize("kind", [LoopKind.SERIAL, LoopKind.PARALLEL])
def test_a_chain_runs_in_two_buffers(compiled: Compile, kind: LoopKind) -> None:
    chain: list[Stmt] = []
    buffers = [array(f"T{k}", (n,)) for k in range(6)]
    source, sink = array("source", (n,)), array("sink", (n,))
    steps = [source, *buffers, sink]
    for before, after in pairwise(steps):
        chain.append(loop(i, 0, n, store(after, i, load(before, n - 1 - i) * 2.0), kind))
    kernel = Kernel("chain", (source, sink), (n,), ("sink",), _allocated(Seq(tuple(chain)), *buffers))
    executable = compiled(kernel, "llvm -num-cores=2")
    assert executable.memory(n=100).total == 2 * 448
    values, found = np.arange(100, dtype="f4"), np.zeros(100, "f4")
    executable(values, found)
    np.testing.assert_array_equal(found, values[::-1] * 128)
