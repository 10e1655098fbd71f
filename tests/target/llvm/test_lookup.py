"""Tables in registers: what they become on every kind of CPU, and that every lane gets its own entry."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tensorlang.ir.construct import array, indices, load, loop, store
from tensorlang.ir.expr import Call
from tensorlang.ir.stmt import Kernel, LoopKind
from tensorlang.runtime.executable import Executable
from tensorlang.target.detect import runs_here

Compile = Callable[..., Executable]
(AT,) = indices("i")
POINTS = 16


def erf_of(compiled: Compile, size: int, target: str, kind: LoopKind = LoopKind.VECTORIZED) -> Executable:
    inputs, out = array("in", (size,)), array("out", (size,))
    body = loop(AT, 0, size, store(out, AT, Call("erf", (load(inputs, AT),), "float32")), kind)
    return compiled(Kernel("f", (inputs, out), (), ("out",), body), target)


@pytest.mark.parametrize(
    ("target", "instruction", "count"),
    [
        ("llvm -mcpu=skylake-avx512", "vpermps", 6),
        ("llvm -mcpu=haswell", "vpermps", 12),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1", "tbl", 6),
    ],
)
def test_a_table_takes_one_instruction_per_register(
    compiled: Compile, target: str, instruction: str, count: int
) -> None:
    lanes = {"vpermps": 16 if count == 6 else 8, "tbl": 4}[instruction]
    assembly = erf_of(compiled, lanes, target).source("asm")
    assert sum(line.split()[:1] == [instruction] for line in assembly.splitlines()) == count


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=nehalem"])
@pytest.mark.parametrize("lanes", [1, 3, 4, 8, 11, 16, 17, 29])
def test_every_lane_gets_its_own_entry(compiled: Compile, target: str, lanes: int) -> None:
    """One number near each point, the points in another order in every turn."""
    vectors, scalars = erf_of(compiled, lanes, target), erf_of(compiled, lanes, target, LoopKind.SERIAL)
    if not runs_here(vectors.target):
        pytest.skip(f"this machine cannot run {target}")
    points = np.linspace(0.01, 3.9, POINTS, dtype=np.float32)
    for turn in range(POINTS):
        x = np.resize(np.roll(points, turn), lanes)
        found, wanted = np.empty_like(x), np.empty_like(x)
        vectors(x, found)
        scalars(x, wanted)
        np.testing.assert_array_equal(found, wanted)
        assert np.all(np.argsort(np.argsort(found[:POINTS])) == np.argsort(np.argsort(x[:POINTS])))
