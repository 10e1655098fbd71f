"""Sows faults into the scan and into every pass, and tells who notices them in an ordinary build.

A mutant that computes the same is none: what the checks accept has to equal the right result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import config, te
from tensorlang.errors import InternalError, TensorlangError
from tensorlang.ir.stmt import Kernel, Stmt
from tensorlang.lowering import pipeline
from tensorlang.lowering.device.nest import Nest
from tensorlang.lowering.kernel import make_kernel
from tests.lowering import bulk_programs
from tests.programs import Case, matmul, row_sum
from tests.seeded_faults.mutations import MUTATIONS, mutants
from tests.threaded_programs import reduced_by_threads, shared_matmul
from tests.warp_programs import rotated


def tiled() -> Case:
    """Register tiles, vectors and threads, with a remainder on every side."""
    case = matmul(13, 21, 5)
    s = case.s["C"]
    i_o, i_i = s.split("i", factor=3, tail="peel")
    j_o, j_i = s.split("j", factor=8, tail="peel")
    s.reorder(i_o, j_o, "k", i_i, j_i)
    s.unroll(i_i)
    s.vectorize(j_i)
    s.parallel(i_o)
    return case


def of_any_size() -> Case:
    """Sizes that are known at a call, guarded tails."""
    n, m = te.var("n"), te.var("m")
    case = matmul(n, m, 4)
    s = case.s["C"]
    i_o, i_i = s.split("i", factor=4)
    j_o, j_i = s.split("j", factor=8)
    s.reorder(i_o, j_o, "k", i_i, j_i)
    s.unroll(i_i)
    s.vectorize(j_i)
    s.parallel(i_o)
    return case


def fused() -> Case:
    """A fused loop on threads, a reduction that is unrolled by a pragma."""
    case = matmul(12, 16, 6)
    s = case.s["C"]
    i_o, j_o, i_i, j_i = s.tile("i", "j", 3, 8)
    s.reorder(i_o, j_o, "k", i_i, j_i)
    s.parallel(s.fuse(i_o, j_o))
    s.pragma("k", "auto_unroll_max_step", 200)
    return case


def virtual_threads() -> Case:
    """Two virtual threads a side, tiles in shared memory, sums in registers."""
    case = matmul(17, 20, 12)
    s, (A, _, C) = case
    CL = s.cache_write(C, "local")
    tile = s.cache_read(A, "shared", [CL])
    i, j = s[C].op.axis
    b_i, i = s[C].split(i, factor=8)
    v_i, t_i = s[C].split(i, factor=4)
    b_j, t_j = s[C].split(j, factor=4)
    s[C].reorder(b_i, b_j, v_i, t_i, t_j)
    for axis, tag in zip(
        (b_i, b_j, v_i, t_i, t_j), ("blockIdx.y", "blockIdx.x", "vthread", "threadIdx.y", "threadIdx.x"), strict=True
    ):
        s[C].bind(axis, te.thread_axis(tag))
    s[CL].compute_at(s[C], t_j)
    k_o, k_i = s[CL].split(s[CL].op.reduce_axis[0], factor=4)
    s[CL].reorder(k_o, k_i, *s[CL].op.axis)
    s[tile].compute_at(s[CL], k_o)
    y, _ = s[tile].split(s[tile].op.axis[0], nparts=4)
    x, _ = s[tile].split(s[tile].op.axis[1], nparts=4)
    s[tile].bind(y, te.thread_axis("threadIdx.y"))
    s[tile].bind(x, te.thread_axis("threadIdx.x"))
    return case


def pipelined() -> Case:
    return bulk_programs.product((32, 64, 32))


def rotation() -> Case:
    s, tensors = rotated(64)
    return Case(s, tuple(tensors))


PROGRAMS: dict[str, tuple[Callable[[], Case], str]] = {
    "tiled": (tiled, "llvm"),
    "of any size": (of_any_size, "llvm"),
    "fused": (fused, "llvm"),
    "shared tiles": (lambda: shared_matmul(12, 9, 20), "interpreter"),
    "virtual threads": (virtual_threads, "interpreter"),
    "reduced by threads": (lambda: reduced_by_threads(row_sum(7, 50), "B", 16), "interpreter"),
    "pipelined": (pipelined, "interpreter"),
    "rotation": (rotation, "interpreter"),
}
SIZES = {"n": 11, "m": 19}


def arrays(case: Case) -> list[Any]:
    rng = np.random.default_rng(0)
    shapes = [[SIZES.get(str(e), e) for e in map(_extent, t.shape)] for t in case.args]
    return [rng.integers(-4, 5, shape).astype(np.float32) for shape in shapes]


def _extent(extent: Any) -> Any:
    return getattr(extent, "value", getattr(extent, "name", extent))


@cache
def wanted(name: str) -> tuple[Any, ...]:
    case = PROGRAMS[name][0]()
    given = arrays(case)
    tensorlang.build(te.create_schedule(case.s.outputs), list(case.args), target="interpreter")(*given)
    return tuple(given)


def passes_of(name: str) -> list[str]:
    """The scan, and the passes of a program's target."""
    target = PROGRAMS[name][1]
    if target == "llvm":
        return ["scan", *(word for word, _ in pipeline.CPU_PASSES)]
    kernel = [word for word, _ in pipeline.KERNEL_PASSES if not word.startswith("check")]
    return ["scan", *(word for word, _ in pipeline.DEVICE_PASSES), *kernel]


class Sower:
    """Sows a fault into what a pass makes, at one of its places; `sown` tells whether there was that place."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, word: str, kind: str, place: int) -> None:
        self.rule, self.place, self.sown = MUTATIONS[kind], place, False
        monkeypatch.setattr(pipeline, "_testing_quotients", lambda derived: None)  # nothing is tried again
        if word == "scan":
            made = make_kernel
            monkeypatch.setattr(pipeline, "make_kernel", lambda *args: self.kernel(made(*args)))
        for listed, change in (
            ("CPU_PASSES", self.kernel),
            ("DEVICE_PASSES", self.kernel),
            ("KERNEL_PASSES", self.nest),
        ):
            passes = getattr(pipeline, listed)
            changed = tuple((w, _then(f, change) if w == word else f) for w, f in passes)
            monkeypatch.setattr(pipeline, listed, changed)

    def body(self, stmt: Stmt) -> Stmt:
        mutant = next(islice(mutants(stmt, self.rule), self.place, None), None)
        if mutant is None or self.sown:
            return stmt
        self.sown = True
        return mutant

    def kernel(self, kernel: Kernel) -> Kernel:
        return replace(kernel, body=self.body(kernel.body))

    def nest(self, nest: Nest) -> Nest:
        return replace(nest, body=self.body(nest.body))


def _then(first: Callable[[Any], Any], then: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: then(first(value))


def noticed(name: str, word: str, kind: str, place: int) -> str | None:
    """Who notices a fault; None where there is no such place, or where it changes nothing."""
    make, target = PROGRAMS[name]
    case = make()
    with pytest.MonkeyPatch.context() as patch, config.override(check=False, cache=False):
        sower = Sower(patch, word, kind, place)
        try:
            built = tensorlang.build(case.s, list(case.args), target=target)
        except InternalError as error:
            return str(error) if sower.sown else None
    if not sower.sown:
        return None
    given = arrays(case)
    try:
        built(*given)
    except TensorlangError as error:
        return f"at the call: {error}"
    return None if all(np.array_equal(a, b) for a, b in zip(given, wanted(name), strict=True)) else ""


def faults(name: str, word: str, kinds: Sequence[str], most: int, places: int) -> Iterator[tuple[str, int, str]]:
    """Yield kinds of faults, at some places each, and who noticed them; at most so many kinds that have a place."""
    found = 0
    for kind in kinds:
        seen = [(kind, place, who) for place in range(places) if (who := noticed(name, word, kind, place)) is not None]
        yield from seen
        found += bool(seen)
        if found == most:
            return


def by_whom(message: str) -> str:
    """Who noticed a fault, in a word."""
    for part, who in _WHO.items():
        if part in message:
            return who
    return "verifier" if message else "not noticed"


_WHO = {
    "does not run": "read back: an instance is missing",
    "no code runs": "read back: an instance is missing",
    "twice": "read back: an instance runs twice",
    "another order": "read back: order",
    "the generated code runs": "read back: an instance too many",
    "that isl did not make": "read back: a bound that cannot be read",
}
