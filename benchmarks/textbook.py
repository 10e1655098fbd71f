"""`python -m benchmarks textbook`: whether a profile names what binds kernels of which textbooks know it.

Each kernel runs on one core, with arrays of a size that one level of caches holds. Told are what the profile says that
its dearest part is bound by, how far its parts and the call from Python, together, are from the run without clocks, and
how far the run with clocks is from that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

import tensorlang
from benchmarks.command_line import write_result
from benchmarks.machine import describe
from benchmarks.peers.process import pinned
from tensorlang import te, topi
from tensorlang.profiling import Profile, profile
from tensorlang.schedule import Schedule
from tensorlang.te import Tensor
from tensorlang.words import format_seconds

TARGET = "llvm -num-cores=1"
ROUNDS = 9
_LANES = 256
"""Elements of a row that are one vector loop."""
Program = tuple[Schedule, list[Tensor]]


def _row(n: int, inputs: int, body: Callable[..., Any]) -> Program:
    """A row that is made of others, in vectors."""
    arrays = [te.placeholder((n,), name=name) for name in "xyz"[:inputs]]
    out = te.compute((n,), lambda i: body(*(a[i] for a in arrays)), name="out")
    s: Schedule = te.create_schedule(out.op)
    s[out].vectorize(s[out].split(out.op.axis[0], factor=_LANES)[1])
    return s, [*arrays, out]


def _by_library(*tensors: Tensor) -> Program:
    return topi.schedule(tensors[-1], TARGET, tuned=False), list(tensors)


def _sum(n: int) -> Program:
    x, k = te.placeholder((n,), name="x"), te.reduce_axis((0, n), "k")
    return _by_library(x, te.compute((1,), lambda i: te.sum(x[k], axis=k), name="out"))


def _dots(n: int) -> Program:
    """Products of a row with all shifts of another, which the first cache holds."""
    x, y, k = te.placeholder((2 * n,), name="x"), te.placeholder((n,), name="y"), te.reduce_axis((0, n), "k")
    out = te.compute((n,), lambda i: te.sum(x[i + k] * y[k], axis=k), name="out")
    s: Schedule = te.create_schedule(out.op)
    _, inner = s[out].split(k, factor=64)
    s.rfactor(out, inner, factor_axis=1)
    s["out.rf"].reorder("k_o", "k_i")
    s["out.rf"].vectorize("k_i")
    return s, [x, y, out]


def _product(n: int) -> Program:
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    return _by_library(A, B, topi.matmul(A, B))


def _gather(n: int) -> Program:
    x, where = te.placeholder((n,), name="x"), te.placeholder((n,), "int32", name="where")
    out = te.compute((n,), lambda i: x[where[i]], name="out")
    s: Schedule = te.create_schedule(out.op)
    s[out].vectorize(s[out].split(out.op.axis[0], factor=_LANES)[1])
    return s, [x, where, out]


def _transposition(n: int) -> Program:
    """Rows that are written from columns, element by element."""
    A = te.placeholder((n, n), name="A")
    out = te.compute((n, n), lambda i, j: A[j, i], name="out")
    return te.create_schedule(out.op), [A, out]


def _stencil(n: int) -> Program:
    A = te.placeholder((n + 2, n + 2), name="A")
    body = lambda i, j: (A[i, j + 1] + A[i + 1, j] + A[i + 1, j + 1] + A[i + 1, j + 2] + A[i + 2, j + 1]) * 0.2  # noqa: E731
    out = te.compute((n, n), body, name="out")
    s: Schedule = te.create_schedule(out.op)
    s[out].vectorize(out.op.axis[1])
    return s, [A, out]


def _chain(n: int) -> Program:
    """A sum as it is declared, whose additions wait for one another."""
    x, k = te.placeholder((n,), name="x"), te.reduce_axis((0, n), "k")
    out = te.compute((1,), lambda i: te.sum(x[k], axis=k), name="out")
    return te.create_schedule(out.op), [x, out]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of a size, and what binds it."""

    name: str
    make: Callable[[int], Program]
    size: int
    binds: str


KERNELS = (
    Kernel("copy, from memory", lambda n: _row(n, 1, lambda x: x), 1 << 25, "memory"),
    Kernel("scale, from L3", lambda n: _row(n, 1, lambda x: 3 * x), 1 << 21, "L3"),
    Kernel("triad, from L2", lambda n: _row(n, 2, lambda x, y: x + 3 * y), 15 << 12, "L2"),
    Kernel("sum, from memory", _sum, 1 << 25, "memory"),
    Kernel("dot products, from L1", _dots, 1 << 11, "L1"),
    Kernel("product of matrices", _product, 768, "compute"),
    Kernel("stencil of 5 points, from memory", _stencil, 1 << 12, "memory"),
    Kernel("exp, from L2", lambda n: _row(n, 1, te.exp), 1 << 15, "compute"),
    Kernel("gather of random elements", _gather, 1 << 22, "latency"),
    Kernel("transposition by elements", _transposition, 1 << 11, "latency"),
    Kernel("sum in one chain", _chain, 1 << 20, "latency"),
)


@dataclass(frozen=True, slots=True)
class Told:
    """What a profile told of a kernel: seconds of its best run, of that with clocks, of the parts of that and of its
    call from Python; and what binds the dearest part, of which `share` is that of its limit.
    """

    name: str
    seconds: float
    instrumented: float
    parts: float
    call: float
    share: float
    wanted: str
    binds: str

    @classmethod
    def of(cls, kernel: Kernel, found: Profile) -> Told:
        """What counts of a profile."""
        leaves = [part for part in found.parts if part.limit is not None]
        dearest = max(leaves, key=lambda part: part.seconds)
        total = sum(part.seconds for part in leaves)
        share, wanted, binds = dearest.share or 0.0, kernel.binds, dearest.binds
        return cls(kernel.name, found.seconds, found.instrumented, total, found.call, share, wanted, binds)

    @property
    def apart(self) -> float:
        """How far the parts and the call are from the run without clocks: 0.01 are one per cent."""
        return (self.parts + self.call) / self.seconds - 1

    @property
    def overhead(self) -> float:
        """What the clocks cost, as far as two runs can tell."""
        return self.instrumented / self.seconds - 1

    def __str__(self) -> str:
        verdict = "" if self.binds == self.wanted else f", not {self.wanted}"
        return (
            f"{self.name:<34} {format_seconds(self.seconds):>9}  parts and call {self.apart:+.1%}  clocks "
            f"{self.overhead:+.1%}  {self.share:.0%} of its limit, bound by {self.binds}{verdict}"
        )


def _arrays(tensors: list[Tensor]) -> list[Any]:
    """Numbers, and places of any element in a random order."""
    rng, made = np.random.default_rng(0), list[Any]()
    for t in tensors:
        shape = tuple(int(n) for n in t.shape)
        made.append(rng.permutation(shape[0]).astype("int32") if t.dtype == "int32" else rng.random(shape, np.float32))
    return made


@click.command("textbook")
@click.option("--rounds", default=ROUNDS, show_default=True, type=click.IntRange(1), help="Runs of each build.")
@click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path), help="Write the result to a file.")
def command(rounds: int, out: Path | None) -> None:
    """Profile textbook kernels on one core: is what binds them named, and do the parts add up?"""
    told: list[Told] = []
    with pinned(1):
        for kernel in KERNELS:
            s, tensors = kernel.make(kernel.size)
            f = tensorlang.build(s, tensors, target=TARGET)
            told.append(Told.of(kernel, profile(f, _arrays(tensors), repeat=rounds)))
            click.echo(str(told[-1]))
    click.echo(f"{sum(one.binds == one.wanted for one in told)} of {len(told)} are named rightly")
    kernels = [asdict(one) | {"apart": one.apart, "overhead": one.overhead} for one in told]
    write_result(out, {**describe(), "threads": 1, "rounds": rounds, "kernels": kernels})
