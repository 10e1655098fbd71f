"""lower, build, and what TENSORLANG_DUMP and TENSORLANG_LOG show of the way from trace to assembly."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tensorlang
from tensorlang import te
from tensorlang.config import override
from tensorlang.errors import ArgumentError, DefinitionError, TargetError
from tensorlang.lowering.pipeline import CPU_PASSES
from tests.programs import Case, chain, matmul, with_extern


def tiled() -> Case:
    """A matmul with register tiles, vectors and threads."""
    s, args = matmul(20, 24, 16)
    C = s["C"]
    i_o, j_o, i_i, j_i = C.tile("i", "j", 4, 8, tail="peel")
    k_o, k_i = C.split("k", 4)
    C.reorder(i_o, j_o, k_o, k_i, i_i, j_i)
    C.parallel(i_o)
    C.unroll(k_i)
    C.vectorize(j_i)
    return Case(s, args)


def stages(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def test_dump_shows_every_stage_from_trace_to_assembly(tmp_path: Path) -> None:
    s, args = tiled()
    with override(dump=tmp_path):
        kernel = tensorlang.build(s, args, target="llvm", name="mm")
    files = stages(tmp_path / "mm")
    assert [int(name[:2]) for name in files] == list(range(len(files)))
    passes = [name for name, _ in CPU_PASSES]
    order = [name[3:].split(".")[0] for name in files]
    assert order == ["trace", "program", "schedule", "scan", *passes, "target", "target"]
    text = {name.split("_", 1)[1]: content for name, content in files.items()}
    assert text["trace.py"] == s.trace.to_python()
    assert text["program.txt"] == s.program.text and "C" in text["program.txt"]
    assert all(loop in text["schedule.tree"] for loop in ("i_o", "j_o", "k_o", "k_i", "i_i", "j_i"))
    assert "parallel i_o in range(5)" in text["scan.loops"] and "vectorized j_i in range(8)" in text["scan.loops"]
    assert "unrolled k_i" in text["scan.loops"] and "unrolled k_i" not in text["unroll.loops"]
    assert text["target.ll"] == kernel.source("ll") and "define" in text["target.ll"]
    assert text["target.asm"] == kernel.source("asm") and len(text["target.asm"].splitlines()) > 20
    last_loops = [content for name, content in files.items() if name.endswith(".loops")][-1]
    assert last_loops == kernel.source("loops")


def test_the_dumped_trace_can_be_run(tmp_path: Path) -> None:
    s, args = tiled()
    with override(dump=tmp_path):
        tensorlang.build(s, args, target="interpreter", name="mm")
    again = matmul(20, 24, 16)
    exec((tmp_path / "mm" / "00_trace.py").read_text(), {"s": again.s})
    assert again.s.trace.key == s.trace.key
    assert str(tensorlang.lower(again.s, again.args)) == str(tensorlang.lower(s, args))


def test_builds_of_one_name_get_a_folder_each(tmp_path: Path) -> None:
    s, args = chain()
    with override(dump=tmp_path / "deep" / "er"):
        tensorlang.build(s, args, target="interpreter")
        tensorlang.build(s, args, target="interpreter")
        tensorlang.lower(s, args)
    folders = sorted(p.name for p in (tmp_path / "deep" / "er").iterdir())
    assert folders == ["main", "main_1", "main_2"]
    assert list(stages(tmp_path / "deep" / "er" / "main_2")) == [
        name.replace(name[:2], f"{n:02d}")
        for n, name in enumerate(x for x in stages(tmp_path / "deep" / "er" / "main") if x.endswith(".loops"))
    ]


def test_the_environment_turns_dumps_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    s, args = chain()
    monkeypatch.setenv("TENSORLANG_DUMP", str(tmp_path))
    tensorlang.build(s, args, target="interpreter", name="f")
    assert (tmp_path / "f" / "00_trace.py").exists()


def test_log_of_passes(capsys: pytest.CaptureFixture[str]) -> None:
    s, args = tiled()
    with override(log="passes"):
        tensorlang.lower(s, args)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in lines] == ["scan", *(name for name, _ in CPU_PASSES)]
    assert all(re.search(r"\d+\.\d\d ms( +\(unchanged\))?$", line) for line in lines)
    assert any(line.endswith("(unchanged)") for line in lines) and not lines[0].endswith("(unchanged)")


def test_lower_prints_the_loops_that_build_compiles() -> None:
    s, args = tiled()
    lowered = tensorlang.lower(s, args, name="mm", target="interpreter")
    built = tensorlang.build(s, args, target="interpreter", name="mm")
    assert str(lowered) == repr(lowered) == built.source("loops")
    assert str(lowered).startswith("kernel mm(A: float32[20, 16]")


def test_arguments_in_any_order_and_sizes_as_arguments() -> None:
    n = te.var("n")
    s, (A, C) = chain(n)
    a = np.arange(5, dtype=np.float32)
    for target in ("interpreter", "llvm"):
        c = np.zeros(5, np.float32)
        tensorlang.build(s, [C, n, A], target=target)(c, 5, a)
        assert c.tolist() == ((a + 1) * 2).tolist()


def test_a_tensor_in_the_middle_can_be_an_output() -> None:
    A = te.placeholder((5,), name="A")
    B = te.compute((5,), lambda i: A[i] + 1, name="B")
    C = te.compute((5,), lambda i: B[i] * 2, name="C")
    s = te.create_schedule([B.op, C.op])
    b, c = np.zeros(5, np.float32), np.zeros(5, np.float32)
    tensorlang.build(s, [A, C, B], target="interpreter")(np.zeros(5, np.float32), c, b)
    assert b.tolist() == [1] * 5 and c.tolist() == [2] * 5


def test_wrong_arguments() -> None:
    s, (A, C) = chain()
    with pytest.raises(DefinitionError, match="args lack C: every input and every output is an argument"):
        tensorlang.build(s, [A])
    with pytest.raises(DefinitionError, match="args lack A"):
        tensorlang.lower(s, [C])
    with pytest.raises(DefinitionError, match="tensor A appears twice in args"):
        tensorlang.build(s, [A, A, C])
    with pytest.raises(DefinitionError, match="args are tensors and sizes, got int 3"):
        tensorlang.build(s, [A, C, 3])
    with pytest.raises(TargetError, match=r"unknown target kind 'lvm'; .*did you mean 'llvm'"):
        tensorlang.build(s, [A, C], target="lvm")


def through() -> tuple[tensorlang.te.Schedule, list[te.Tensor]]:
    """C of B of A, of eight elements each."""
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1, name="B")
    C = te.compute((8,), lambda i: B[i] * 2, name="C")
    return te.create_schedule(C.op), [A, B, C]


@pytest.mark.parametrize("target", ["llvm", "interpreter"])
def test_outputs_of_an_operation_that_args_lack_are_kept_inside(target: str) -> None:
    A = te.placeholder((8,), name="A")
    B, C = te.compute((8,), lambda i: (A[i] + 1, A[i] * 2), name="B")
    values, out = np.arange(8, dtype=np.float32), np.empty(8, np.float32)
    for made, wanted in ((B, values + 1), (C, values * 2)):
        tensorlang.build(te.create_schedule(B.op), [A, made], target=target)(values, out)
        np.testing.assert_array_equal(out, wanted)


def test_what_is_computed_on_the_way_is_an_output_where_it_is_an_argument() -> None:
    s, (A, B, C) = through()
    s[B].vectorize(B.op.axis[0])
    b, c = np.zeros(8, np.float32), np.zeros(8, np.float32)
    tensorlang.build(s, [A, B, C])(np.ones(8, np.float32), b, c)
    assert b.tolist() == [2] * 8 and c.tolist() == [4] * 8
    s[B].compute_at(s[C], s[C].split("i", factor=4)[0])
    tensorlang.build(s, [A, C])
    with pytest.raises(DefinitionError, match=r"B is computed on the way; .* not computed whole: .*compute_at"):
        tensorlang.build(s, [A, B, C])


def test_an_output_that_is_no_argument_is_kept_inside() -> None:
    s, (A, _, C) = through()
    assert "allocate C" in str(tensorlang.lower(s, [A]))
    assert "allocate C" not in str(tensorlang.lower(s, [A, C]))


def test_what_nobody_reads_may_be_an_argument() -> None:
    s, (A, _, C) = through()
    Z, q = te.placeholder((3, 2), "int8", name="A"), te.var("q")
    for target in ("llvm", "interpreter"):
        kernel, c = tensorlang.build(s, [q, A, Z, C], target), np.zeros(8, np.float32)
        kernel(5, np.ones(8, np.float32), np.zeros((3, 2), np.int8), c)
        assert c.tolist() == [4] * 8
        with pytest.raises(ArgumentError, match=r"argument 3 \(A_1\): expected dtype int8"):
            kernel(5, np.ones(8, np.float32), np.zeros((3, 2), np.int16), c)


def test_extern_functions_see_whole_arrays() -> None:
    s, args = with_extern()
    kernel = tensorlang.build(s, args, target="interpreter")
    assert "python S(B, S)" in kernel.source("loops")
