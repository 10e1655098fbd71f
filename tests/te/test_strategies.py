"""The shipped random programs are exact, small and varied."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import given, settings

from tensorlang import te
from tensorlang.ir.expr import Const, Expr, Load, Select, walk
from tensorlang.te.operation import ComputeOp
from tensorlang.testing.strategies import ProgramCase, programs


@settings(max_examples=60)
@given(programs())
def test_cases_are_exact_and_whole(case: ProgramCase) -> None:
    used = {op.name for op in case.program.ops}
    assert used == {t.name for t in (*case.placeholders, *case.stages)}
    assert [t.name for t in case.outputs if t.op not in {s.op for s in case.stages}] == []
    for tensor, array in zip(case.outputs, case.expected()):
        assert array.dtype.name == tensor.dtype and array.size <= 9**3
        if array.dtype.kind == "f":
            assert np.array_equal(array, np.rint(array)) and np.abs(array).max() < 2**24


@settings(max_examples=20)
@given(programs(dtypes_from=["int8"], max_stages=1, max_rank=2, max_extent=4))
def test_limits_are_kept(case: ProgramCase) -> None:
    assert len(case.stages) == 1
    for tensor in case.stages:
        assert tensor.dtype == "int8" and tensor.ndim <= 2
        assert all(isinstance(e, Const) and e.value <= 4 for e in tensor.shape)


def operations(case: ProgramCase) -> list[ComputeOp]:
    return [op for op in case.program.ops if isinstance(op, ComputeOp)]


def nodes(case: ProgramCase) -> list[Expr]:
    return [node for op in operations(case) for body in op.body for node in walk(body)]


KINDS: dict[str, Callable[[ProgramCase], bool]] = {
    "two reduce axes": lambda case: any(len(op.reduce_axes) == 2 for op in operations(case)),
    "guard": lambda case: any(isinstance(n, Select) for n in nodes(case)),
    "gather": lambda case: any(isinstance(part, Load) for n in nodes(case) if isinstance(n, Load) for part in n.index),
    "division": lambda case: "// 2" in case.program.text,
    "remainder": lambda case: " % " in case.program.text,
    "where": lambda case: "where=" in case.program.text,
    "product": lambda case: "prod(" in case.program.text,
    "chain": lambda case: len(case.stages) == 3 and len(case.outputs) == 1,
    "several outputs": lambda case: len(case.outputs) == 3,
    "mixed dtypes": lambda case: len({t.dtype for t in case.tensors}) > 1,
}


def test_every_kind_of_program_is_drawn() -> None:
    seen: set[str] = set()

    @settings(max_examples=300, database=None, derandomize=True, deadline=None)
    @given(programs())
    def collect(case: ProgramCase) -> None:
        seen.update(kind for kind, holds in KINDS.items() if holds(case))

    collect()
    assert seen == set(KINDS)


def test_text_shows_the_program() -> None:
    A = te.placeholder((3,), name="A")
    B = te.compute((3,), lambda i: A[i], name="B")
    case = ProgramCase((A,), (B,), (B,), (np.arange(3, dtype="f"),))
    assert "B: float32[3] [i < 3] = A[i]" in repr(case)
    assert case.tensors == (A, B) and case.expected()[0].tolist() == [0, 1, 2]
