"""The passes of a device nest are named, dumped, timed, and what each of them makes is verified."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import tensorlang
from tensorlang import config
from tensorlang.errors import InternalError
from tensorlang.ir.construct import array, indices, kernel, load, loop, store
from tensorlang.ir.expr import Const, Var
from tensorlang.ir.stmt import INDEX, Allocate, Barrier, For, If, Kernel, LoopKind, Seq, Stmt, map_children
from tensorlang.ir.thread_tags import THREADS
from tensorlang.lowering import pipeline
from tensorlang.lowering.device.nest import Form, Nest
from tensorlang.lowering.pipeline import DEVICE_PASSES, KERNEL_PASSES, to_device
from tests.programs import row_sum

b, i, j, r = indices("b i j r")
A, B = array("A", (6, 32)), array("B", (6, 32))
T, R = array("T", (32,), scope="shared"), array("R", (32, 3))


def rows() -> Kernel:
    """Two regions of the threads of a block, with a tile in shared memory and three registers of each thread."""
    fill = loop(i, 0, 32, store(T, i, load(A, b, i)), LoopKind.BOUND, THREADS[0])
    lanes = loop(r, 0, 3, store(R, (j, r), load(T, 31 - j) * 2), LoopKind.VECTORIZED)
    use = Seq((lanes, store(B, (b, j), load(R, j, 1))))
    read = loop(j, 0, 32, use, LoopKind.BOUND, THREADS[0])
    block = Allocate(T, Allocate(R, Seq((fill, Barrier(), read)), (THREADS[0],)))
    return kernel("rows", [A, B], "B", loop(b, 0, 6, block, LoopKind.BOUND, "blockIdx.x"))


def named(folder: Path) -> list[str]:
    """The stages that a build has dumped, in order."""
    return [path.stem.partition("_")[2] for path in sorted(folder.iterdir())]


def test_every_pass_is_dumped_and_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    s, args = row_sum(7, 5)
    s["B"].bind("i", THREADS[0])
    with config.override(dump=tmp_path, log="passes"):
        lowered = tensorlang.lower(s, args, target="cuda", name="sums")
    names = [word for part in (DEVICE_PASSES, KERNEL_PASSES) for word, _ in part]
    wanted = ["scan", *names[: len(DEVICE_PASSES)], "split", *names[len(DEVICE_PASSES) :], "join"]
    assert len(set(wanted)) == len(wanted)
    assert named(tmp_path / "sums") == wanted
    assert [line.split()[0] for line in capsys.readouterr().err.splitlines()] == wanted
    texts = {path.stem.partition("_")[2]: path.read_text() for path in (tmp_path / "sums").iterdir()}
    assert texts["join"] == str(lowered)
    assert "threadIdx.x i in range(7)" in texts["split"] and "range(7)" not in texts["join"]
    assert all("launch sums_kernel0" in texts[word] for word in wanted[wanted.index("split") :])


def test_forms_only_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds of a nest after a pass holds until the end."""
    forms: list[Form] = []

    def noting(function: Callable[[Nest], Nest]) -> Callable[[Nest], Nest]:
        def noted(nest: Nest) -> Nest:
            made = function(nest)
            forms.append(made.form)
            return made

        return noted

    monkeypatch.setattr(pipeline, "KERNEL_PASSES", tuple((word, noting(f)) for word, f in KERNEL_PASSES))
    to_device(rows())
    assert forms == sorted(forms) and set(forms) == set(Form)


def everywhere(change: Callable[[Stmt], Stmt]) -> Callable[[Nest], Nest]:
    """A pass that changes statements, innermost first."""

    def visit(stmt: Stmt) -> Stmt:
        return change(map_children(stmt, visit))

    return lambda nest: replace(nest, body=visit(nest.body))


def without_arrays(stmt: Stmt) -> Stmt:
    return stmt.body if isinstance(stmt, Allocate) else stmt


def of_another_variable(stmt: Stmt) -> Stmt:
    return replace(stmt, upper=Var("lost", INDEX)) if isinstance(stmt, For) else stmt


def with_copies(stmt: Stmt) -> Stmt:
    return replace(stmt, threads=(THREADS[0],)) if isinstance(stmt, Allocate) else stmt


def for_the_first(stmt: Stmt) -> Stmt:
    return If(Var(THREADS[0], INDEX) < 1, stmt) if isinstance(stmt, Barrier) else stmt


def of_three(stmt: Stmt) -> Stmt:
    return replace(stmt, kind=LoopKind.VECTORIZED, upper=Const(3, INDEX)) if isinstance(stmt, For) else stmt


def bound_again(stmt: Stmt) -> Stmt:
    return For(i, Const(0, INDEX), Const(1, INDEX), LoopKind.BOUND, stmt, "", "threadIdx.y")


FAULTS: dict[str, tuple[str, Callable[[Nest], Nest], str]] = {
    "a region over a lost variable": ("place_arrays", everywhere(of_another_variable), "lost"),
    "a region without its arrays": ("count_threads", everywhere(without_arrays), "buffer .* is used outside its scope"),
    "threads without their arrays": ("to_threads", everywhere(without_arrays), "array .* is used outside its scope"),
    "a loop on threads inside them": ("to_threads", everywhere(bound_again), "bound loop is left"),
    "no shared array": ("own_arrays", lambda nest: replace(nest, shared=()), "array T is used outside its scope"),
    "a copy for each thread": ("own_arrays", everywhere(with_copies), "still has a copy for each of threadIdx.x"),
    "too large a grid": ("simplify_own", lambda nest: replace(nest, grid=(Var("lost", INDEX),) * 3), "lost"),
    "a barrier for the first thread": ("drop_unused_own", everywhere(for_the_first), "not all threads of a block come"),
    "no register": ("keep_once", everywhere(without_arrays), "array R is used outside its scope"),
    "a vector of three": ("legal_kinds", everywhere(of_three), "a vectorized loop has 3 lanes"),
    "no threads": ("simplify_kinds", lambda nest: replace(nest, threads={THREADS[0]: 0}), "the block has"),
    "a form too early": ("place_arrays", lambda nest: replace(nest, form=Form.LANES), "a bound loop is left"),
}
"""What a wrong pass could do, the pass behind which it is put, and what is said of it."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_pass_is_found_where_it_is(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, wrong, said = FAULTS[fault]
    passes = [(word, function) for word, function in KERNEL_PASSES]
    at = [word for word, _ in passes].index(place) + 1
    monkeypatch.setattr(pipeline, "KERNEL_PASSES", (*passes[:at], ("wrong", wrong), *passes[at:]))
    with pytest.raises(InternalError, match=said) as found:
        to_device(rows())
    assert found.value.__notes__ == ["after the pass wrong"]


def test_a_wrong_kernel_is_refused_without_checks_between(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = ("wrong", everywhere(without_arrays))
    monkeypatch.setattr(pipeline, "KERNEL_PASSES", (*KERNEL_PASSES, wrong))
    with config.override(check=False), pytest.raises(InternalError, match="array R is used outside its scope"):
        to_device(rows())
