"""The checker that users call: it must accept what is right, and find what is wrong."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import tensorlang
from tensorlang import te
from tensorlang.errors import ArgumentError
from tensorlang.testing.check import check_schedule
from tests.programs import chain, matmul


def test_it_is_offered_to_users() -> None:
    assert tensorlang.testing.check_schedule is check_schedule
    assert "check_schedule" in dir(tensorlang.testing)
    program = "import sys, tensorlang.testing as t; t.assert_allclose; print({'islpy', 'llvmlite'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("target", ["interpreter", "llvm"])
def test_a_wrong_schedule_is_found(target: str) -> None:
    """Its program is swapped for another behind the back of every check."""
    s, args = chain()
    s._state = replace(s._state, program=te.create_schedule(wrong_chain()).program)
    with pytest.raises(AssertionError, match=rf"C is wrong on {target} with no sizes:") as caught:
        check_schedule(s, args, targets=(target,))
    assert "Mismatched elements" in str(caught.value)


def wrong_chain() -> te.Tensor:
    A = te.placeholder((20,), name="A")
    B = te.compute((20,), lambda i: A[i] + 1, name="B")
    made: te.Tensor = te.compute((20,), lambda i: B[i] * 3, name="C")
    return made


def test_an_output_not_written_is_found() -> None:
    """Outputs hold other values before the run, so that what is not written shows."""
    s, args = matmul(3, 3, 3)
    op = s.program["C"]
    assert isinstance(op, te.ComputeOp)
    nowhere = replace(op, where=(te.const(1) > te.const(2),))
    s._state = replace(s._state, program=s.program.replacing({"C": nowhere}))
    with pytest.raises(AssertionError, match="C is wrong on interpreter"):
        check_schedule(s, args, targets=("interpreter",))


def test_sizes_and_inputs() -> None:
    n = te.var("n")
    s, args = chain(n)
    check_schedule(s, args, {"n": 9})
    check_schedule(s, (n, *args), {"n": 4})
    check_schedule(s, args, {"n": 2}, inputs={"A": np.array([1e6, -1e6], np.float32)})
    with pytest.raises(ArgumentError, match=r"no value for n; pass sizes=\{'n': ...\}"):
        check_schedule(s, args)


def test_inputs_are_seeded_whole_numbers() -> None:
    seen: list[np.ndarray] = []

    def keep(values: np.ndarray, out: np.ndarray) -> None:
        seen.append(values.copy())
        out[:] = values

    for dtype, low, high in (("float16", -3, 3), ("int8", -3, 3), ("uint8", 0, 3), ("bool", 0, 1)):
        A = te.placeholder((200,), dtype, name="A")
        E = te.extern((200,), [A], keep, name="E")
        s = te.create_schedule(E.op)
        check_schedule(s, (A, E), seed=1)
        reference, interpreter, llvm = seen
        assert reference.tolist() == interpreter.tolist() == llvm.tolist()
        assert {int(v) for v in reference.tolist()} == set(range(low, high + 1))
        seen.clear()
        check_schedule(s, (A, E), seed=2, targets=())
        assert seen.pop().tolist() != reference.tolist()
