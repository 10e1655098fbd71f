"""The PolyBench kernels: right as plain Python, and on every target, in every order, what they are as plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pytest

import tensorlang
from examples.polybench import KERNELS
from examples.polybench.case import Arrays, Case, Declared, Mistake, Sizes
from tensorlang.errors import IllegalOrder
from tensorlang.schedule import Schedule
from tensorlang.te.reference import evaluate

SUITE = """correlation covariance gemm gemver gesummv symm syr2k syrk trmm 2mm 3mm atax bicg doitgen mvt cholesky durbin
gramschmidt lu ludcmp trisolv deriche floyd-warshall nussinov adi fdtd-2d heat-3d jacobi-1d jacobi-2d seidel-2d"""
MISTAKES = [(case, name) for case in KERNELS.values() for name in case.mistakes]

kernels = pytest.mark.parametrize("case", KERNELS.values(), ids=KERNELS)
targets = pytest.mark.parametrize("target", ["llvm", "interpreter"])


def draw(case: Case, sizes: Sizes, seed: int = 0) -> Arrays:
    """Inputs for a kernel."""
    return case.arrays(sizes, np.random.default_rng(seed))


def obeys(case: Case, given: Arrays, got: Arrays) -> bool:
    """Whether the results fit the law of the kernel."""
    return all(np.allclose(left, right, rtol=1e-9, atol=1e-10) for left, right in case.law(given, got))


@lru_cache(maxsize=2)
def scheduled(name: str, by_hand: bool, constant: bool) -> tuple[Declared, Schedule]:
    """A kernel, with symbolic sizes unless they are constant, in the order of its script or scheduled by hand."""
    case = KERNELS[name]
    declared = case.declare(case.sizes if constant else None)
    s = declared.create_schedule()
    if by_hand:
        case.schedule(s)
        assert s.trace.steps
    return declared, s


def check(case: Case, target: str, runs: Sequence[Sizes], by_hand: bool = False, constant: bool = False) -> None:
    """Build a kernel and compare its results with the plain Python run, for each of the sizes."""
    declared, s = scheduled(case.name, by_hand, constant)
    built = tensorlang.build(s, declared.args, target)
    for sizes in runs:
        given = draw(case, sizes)
        got = declared.call(built, sizes, given)
        for name, wanted in case.run(sizes, given).items():
            np.testing.assert_allclose(got[name], wanted, rtol=1e-9, atol=1e-11, err_msg=f"{name} for {sizes}")


def tiny(case: Case, size: int) -> Sizes:
    """All sizes as small as this."""
    return dict.fromkeys(case.sizes, size)


def test_all_thirty_kernels_are_here() -> None:
    assert list(KERNELS) == SUITE.split()


@kernels
@pytest.mark.parametrize("seed", range(3))
def test_plain_python_obeys_the_law(case: Case, seed: int) -> None:
    given = draw(case, case.sizes, seed)
    assert obeys(case, given, case.run(case.sizes, given))


@kernels
def test_the_law_sees_every_element(case: Case) -> None:
    given = draw(case, case.sizes)
    got = case.run(case.sizes, given)
    for name, array in got.items():
        for place in np.ndindex(array.shape):
            wrong = array.copy()
            wrong[place] += 1
            assert not obeys(case, given, {**got, name: wrong}), f"{name}{list(place)} can be anything"


@kernels
def test_the_reference_is_the_plain_python_run(case: Case) -> None:
    program = case.declare().create_schedule().program
    given = draw(case, case.sizes)
    got = evaluate(program, given, case.sizes)
    for array, wanted in zip(got.values(), case.run(case.sizes, given).values(), strict=True):
        np.testing.assert_array_equal(array, wanted)


@pytest.mark.sampled(5)
@targets  # in turn, of one schedule
@kernels
def test_declared_order_for_all_sizes(case: Case, target: str) -> None:
    check(case, target, [case.sizes, tiny(case, 1), tiny(case, 2), tiny(case, 3)])


@pytest.mark.sampled(5)
@targets  # in turn, of one schedule
@kernels
def test_declared_order_for_constant_sizes(case: Case, target: str) -> None:
    check(case, target, [case.sizes], constant=True)


@pytest.mark.sampled(5)
@targets  # in turn, of one schedule
@kernels
def test_schedule_for_all_sizes(case: Case, target: str) -> None:
    check(case, target, [case.sizes, tiny(case, 1), tiny(case, 2), tiny(case, 5)], by_hand=True)


@pytest.mark.sampled(5)
@targets  # in turn, of one schedule
@kernels
def test_schedule_for_constant_sizes(case: Case, target: str) -> None:
    check(case, target, [case.sizes], by_hand=True, constant=True)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("case", "name"), MISTAKES, ids=[f"{case.name}: {name}" for case, name in MISTAKES])
def test_mistakes_are_refused(case: Case, name: str) -> None:
    mistake: Mistake = case.mistakes[name]
    s = case.declare().create_schedule()
    with pytest.raises(mistake.error) as caught:
        mistake.steps(s)
    witness = caught.value.witness
    assert witness is not None
    assert (witness.kind, witness.element, witness.distance) == (mistake.kind, mistake.element, mistake.distance)


REORDERED = [(case, m) for case in KERNELS.values() for m in case.mistakes.values() if m.error is IllegalOrder]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("case", "mistake"), REORDERED, ids=[case.name for case, _ in REORDERED])
def test_refused_orders_compute_something_else(case: Case, mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorlang.schedule.schedule.verify", lambda state: None)
    monkeypatch.setenv("TENSORLANG_CHECK", "0")
    declared = case.declare(case.sizes)
    s = declared.create_schedule()
    mistake.steps(s)
    given = draw(case, case.sizes)
    got = declared.call(tensorlang.build(s, declared.args, "interpreter"), case.sizes, given)
    assert not all(np.allclose(got[name], wanted) for name, wanted in case.run(case.sizes, given).items())


def test_many_kernels_come_with_a_mistake() -> None:
    assert sum(bool(case.mistakes) for case in KERNELS.values()) >= 10
