"""Exported kernels in a process again: loaded, pickled, proven from their metadata; and what is refused."""

from __future__ import annotations

import json
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import te
from tensorlang.cli.main import main
from tensorlang.errors import ArgumentError, RecordError, ScheduleError, TargetError
from tensorlang.export.loading import prove, read_metadata
from tensorlang.runtime.executable import Executable
from tensorlang.te.data import NotData, from_data, to_data
from tests.export.exported import layer, rows, two_regions


def given() -> tuple[Any, Any]:
    a = np.random.default_rng(1).standard_normal((21, 50), np.float32)
    wanted = np.zeros_like(a)
    rows()(a, wanted)
    return a, wanted


def found(kernel: Executable, a: Any) -> Any:
    out = np.zeros_like(a)
    kernel(a, out)
    return out


UNREADABLE = Path("/proc/self/mem")


@pytest.mark.parametrize("threads", ["host", "serial"])
def test_a_library_is_a_kernel_again(threads: str, tmp_path: Path) -> None:
    a, wanted = given()
    made = rows().export(tmp_path / "rows", formats=("so",), threads=threads)
    kernel = tensorlang.load(made.files["so"])
    np.testing.assert_array_equal(found(kernel, a), wanted)
    np.testing.assert_array_equal(found(pickle.loads(pickle.dumps(kernel)), a), wanted)
    with pytest.raises(ArgumentError, match="rows: output back overlaps a"):
        kernel(a, a)
    with pytest.raises(TargetError, match="exported already"):
        kernel.export(tmp_path / "again")


def test_loaded_kernels_make_their_outputs_and_say_that_they_have_no_loops(tmp_path: Path) -> None:
    a, b = te.placeholder((te.var("n"), 4), name="a"), te.placeholder((4,), name="b")
    c = te.compute(a.shape, lambda i, j: a[i, j] + b[j], name="c")
    kernel = tensorlang.build(te.create_schedule(c.op), [a, b, c], name="added")
    kernel.export(tmp_path / "added", formats=("so",))
    loaded = tensorlang.load(tmp_path / "added.so")
    x, y = np.ones((3, 4), np.float32), np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(loaded(x, y), x + y)
    for ask in (lambda: loaded.profile(x, y), loaded.warnings):
        with pytest.raises(TargetError, match="added was loaded without its loops"):
            ask()


def test_loaded_kernels_fail_as_built_ones(tmp_path: Path) -> None:
    data, index = te.placeholder((8,), name="data"), te.placeholder((te.var("n"),), "int32", name="index")
    out = te.compute(index.shape, lambda i: data[index[i]], name="out")
    s = te.create_schedule(out.op)
    s[out].parallel("i")
    kernel = tensorlang.load(tensorlang.build(s, [out, index, data]).export(tmp_path / "take").files["so"])
    values, taken = np.arange(8, dtype=np.float32), np.zeros(40, np.float32)
    kernel(taken, np.full(40, 3, np.int32), values)
    np.testing.assert_array_equal(taken, 3)
    with pytest.raises(tensorlang.KernelError, match=r"^take: out reads data"):
        kernel(taken, np.full(40, 8, np.int32), values)


def test_executables_pickle(tmp_path: Path) -> None:
    a, wanted = given()
    here = rows()
    there = pickle.loads(pickle.dumps(here))
    np.testing.assert_array_equal(found(there, a), wanted)
    assert there.source("loops") == here.source("loops") and there.source("ll") == here.source("ll")
    assert there.memory(m=3, n=4) == here.memory(m=3, n=4)
    with pytest.raises(TargetError, match="not built here"):
        there.export(tmp_path / "rows")
    x = te.placeholder((4,), name="x")
    plain = tensorlang.build(
        [x, te.compute((4,), lambda i: x[i] + 1, name="y")], schedule="default", target="interpreter"
    )
    out = np.zeros(4, np.float32)
    pickle.loads(pickle.dumps(plain))(np.ones(4, np.float32), out)
    np.testing.assert_array_equal(out, 2)


def test_other_processes_take_kernels() -> None:
    a, wanted = given()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        np.testing.assert_array_equal(pool.submit(found, rows(), a).result(), wanted)


def test_facts_are_pickled_and_exported(tmp_path: Path) -> None:
    index = te.placeholder((4,), "int32", name="index")
    data = te.placeholder((4,), name="data")
    out = te.compute((4,), lambda i: data[index[i]], name="out")
    s = te.create_schedule(out.op)
    s.assume("range", index, 0, 4)
    s.tests_assumptions = True
    kernel = tensorlang.build(s, [index, data, out])
    made = kernel.export(tmp_path / "take")
    assert "not tested: index is in the range 0 <= element < 4" in made.files["h"].read_text()
    wrong = np.array([0, 1, 2, 4], np.int32), np.zeros(4, np.float32), np.zeros(4, np.float32)
    for other in (pickle.loads(pickle.dumps(kernel)), tensorlang.load(made.files["so"])):
        with pytest.raises(ArgumentError, match="as the schedule assumes"):
            other(*wrong)


@pytest.mark.parametrize("make", [layer, rows, two_regions])
def test_proofs_travel_along(make: Any, tmp_path: Path) -> None:
    kernel = make()
    made = kernel.export(tmp_path / "kernel")
    for form in ("json", "so", "o"):
        (proof,) = prove(made.files[form])
        assert proof.schedule.trace.to_json() == kernel.origin.schedule.trace.to_json()
        assert proof.schedule.program.key == kernel.origin.schedule.program.key


def test_wrong_metadata_are_refused(tmp_path: Path) -> None:
    made = rows().export(tmp_path / "rows")
    path: Path = made.files["json"]
    right = json.loads(path.read_text())

    def changed(**parts: Any) -> Path:
        path.write_text(json.dumps({**right, **parts}))
        return path

    (variant,) = right["variants"]
    illegal = [{**variant["trace"][0], "axis": "k"}, *variant["trace"][1:]]
    with pytest.raises(RecordError, match="not those that it shows"):
        prove(changed(variants=[{**variant, "trace": []}]))
    with pytest.raises((RecordError, ScheduleError)):
        prove(changed(variants=[{**variant, "trace": illegal}]))
    with pytest.raises(RecordError, match="not the one that its text shows"):
        prove(changed(program={**right["program"], "text": "another"}))
    with pytest.raises(RecordError, match="no node of a program"):
        prove(changed(program={**right["program"], "data": [["Path", "/tmp"]]}))
    with pytest.raises(RecordError, match="ABI 99"):
        prove(changed(tensorlang_abi=99))
    made.files["o"].write_bytes(b"\x7fELF")
    with pytest.raises(RecordError, match=r"rows.o is not the file that was exported"):
        prove(changed())
    with pytest.raises(RecordError, match="lack something: 'program'"):
        path.write_text(json.dumps({k: v for k, v in right.items() if k != "program"}))
        prove(path)
    for other, words in (
        (tmp_path / "no.so", "no such file"),
        (Path(__file__), "no kernel that tensorlang"),
        (UNREADABLE, "cannot read"),
    ):
        with pytest.raises(RecordError, match=words):
            tensorlang.load(other)
    assert read_metadata(made.files["so"])["name"] == "rows"


def test_programs_as_data() -> None:
    data = to_data(layer().origin.schedule.original)  # type: ignore[union-attr]
    assert from_data(json.loads(json.dumps(data))).text == layer().origin.schedule.original.text  # type: ignore[union-attr]
    for value in (float("nan"), -0.0, True, None, "a", (1, (2.5,)), {"k": 3}):
        assert str(from_data(json.loads(json.dumps(to_data((value,)))))) == str((value,))
    assert from_data(json.loads(json.dumps(to_data(frozenset({"b", "a"}))))) == {"a", "b"}
    with pytest.raises(NotData, match="a function"):
        to_data((given,))
    wrong: Any
    for wrong in ([], {}, [["tuple", [{"at": 0}]]], [["Const", 1]], [["tuple", [{"float": "x"}]]]):
        with pytest.raises(RecordError):
            from_data(wrong)


FILE = """
from tensorlang import te, topi

def layer(m, k):
    x, w = te.placeholder((m, k), name="x"), te.placeholder((8, k), name="w")
    return [x, w, topi.relu(topi.dense(x, w))]

def scheduled():
    a = te.placeholder((8,), name="a")
    b = te.compute((8,), lambda i: a[i] + 1, name="b")
    return te.create_schedule(b.op), [a, b]

def nothing():
    return 7
"""


def command(*words: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    return int(str(stop.value.code))


def test_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.py").write_text(FILE)
    assert command("export", "my.py:layer", "--args", "12,16", "-o", "out/layer", "--formats", "so,h") == 0
    assert sorted(p.name for p in Path("out").iterdir()) == ["layer.h", "layer.json", "layer.so"]
    kernel = tensorlang.load("out/layer.so")
    x, w, out = np.ones((12, 16), np.float32), np.ones((8, 16), np.float32), np.zeros((12, 8), np.float32)
    kernel(x, w, out)
    np.testing.assert_array_equal(out, 16)
    capsys.readouterr()
    assert command("check", "out/layer.json") == 0
    told = capsys.readouterr().out
    assert told.startswith("llvm -mcpu=") and ": legal" in told
    assert command("export", "my.py:scheduled", "-o", "out/plain", "--formats", "h") == 0
    assert command("export", "my.py:nothing", "-o", "out/plain") == 2
    assert "got 7" in capsys.readouterr().err
