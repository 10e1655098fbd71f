"""What classic programs call beside te: utilities of topi, references, settings, folders."""

from __future__ import annotations

import importlib
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorlang as tvm
from tensorlang import te, topi
from tensorlang.errors import DefinitionError, TargetError


@pytest.mark.parametrize(
    ("name", "real"),
    [
        ("tensorlang.autotvm.tuner", "tensorlang.autotune.tuner"),
        ("tensorlang.auto_scheduler", "tensorlang.autotune"),
        ("tensorlang.autotvm.task.space", "tensorlang.autotune.templates.config"),
        ("tensorlang.autotvm.task.topi_integration", "tensorlang.autotune.task"),
        ("tensorlang.autotvm.tuner.xgboost_tuner", "tensorlang.autotune.tuner"),
        ("tensorlang.topi.nn", "tensorlang.classic.nn"),
        ("tensorlang.topi.image", "tensorlang.topi"),
        ("tensorlang.topi.nn.utils", "tensorlang.classic.constants"),
        ("tensorlang.runtime.ndarray", "tensorlang.nd"),
        ("tensorlang.contrib.sparse", "tensorlang.topi.sparse"),
        ("tensorlang.topi.cuda.depthwise_conv2d", "tensorlang.classic.schedules"),
    ],
)
def test_modules_are_imported_under_the_names_of_tvm(name: str, real: str) -> None:
    assert importlib.import_module(name) is importlib.import_module(real)
    assert importlib.import_module(real).__spec__.name == real  # type: ignore[union-attr]


def test_names_that_nobody_offers_are_no_modules() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("tensorlang.autotvm.nothing")


def test_numbers_in_shapes() -> None:
    n = te.var("n")
    A = te.placeholder((4, n), name="A")
    assert topi.utils.get_const_tuple(A.shape) == (4, n) and topi.utils.get_const_int(A.shape[0]) == 4
    assert topi.utils.prod((2, te.const(3), 4)) == 24 and topi.utils.get_max_power2_factor(48, 8) == 8
    assert topi.utils.equal_const_int(A.shape[0], 4) and not topi.utils.equal_const_int(n, 4)
    assert topi.utils.get_pad_tuple("SAME", (3, 2)) == (1, 1, 1, 0) and topi.nn.get_pad_tuple(2, (3, 3)) == (2,) * 4
    with pytest.raises(DefinitionError, match="expect a constant integer, got n"):
        topi.utils.get_const_int(n)


def test_traverse_inline_keeps_what_is_tagged_or_reduced() -> None:
    A = te.placeholder((4, 4), name="A")
    k = te.reduce_axis((0, 4), "k")
    B = te.compute((4, 4), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((4,), lambda i: te.sum(B[i, k], axis=k), name="C")
    D = te.compute((4,), lambda i: C[i] * 2, name="D")
    E = te.compute((4,), lambda i: D[i] - 1, name="E")
    s, called = te.create_schedule(E.op), []
    topi.utils.traverse_inline(s, E.op, lambda op: called.append(op.name))
    assert called == ["C", "D", "E"] and [stage.name for stage in s.stages] == ["A", "B", "C", "E"]
    F = te.compute((4,), lambda i: D[i] - 1, name="F", tag="mine")
    s, called = te.create_schedule(F.op), []
    topi.utils.traverse_inline(s, F.op, lambda op: called.append(op.name))
    assert called == ["F"] and len(s.stages) == 5


def test_an_operation_is_the_declared_one_until_it_is_rewritten() -> None:
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1, name="B")
    s = te.create_schedule(B.op)
    assert s[B].op == B.op
    s[B].split("i", factor=4)
    assert s[B].op == B.op
    s.cache_read(A, "global", [B])
    assert s[B].op != B.op


def test_references_and_schedules_of_tests() -> None:
    rng = np.random.default_rng(0)
    a, w = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((1, 2, 5, 5), (4, 2, 3, 3)))
    plain = topi.testing.conv2d_nchw_python(a, w, 1, 1)
    turned = topi.testing.conv2d_nhwc_python(a.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0), (1, 1), "SAME")
    np.testing.assert_array_equal(plain, turned.transpose(0, 3, 1, 2))
    wide = topi.testing.dilate_python(w, (1, 1, 2, 2))
    assert wide.shape == (4, 2, 5, 5) and wide[..., ::2, ::2].tolist() == w.tolist() and not wide[..., 1::2, :].any()
    assert topi.testing.dispatch("llvm", {"gpu": 1, "generic": 2}) == 2
    with pytest.raises(DefinitionError, match="no entry for cpu"):
        topi.testing.dispatch("llvm", {"gpu": 1})
    topi.testing.compare_numpy_tvm([a], np.maximum(a, 0), "llvm", tvm.cpu(), topi.nn.relu, topi.x86.schedule_injective)


def test_references_take_parameters_in_the_order_that_they_have_in_tvm() -> None:
    data, weights = np.ones((1, 2, 3, 3), np.float32), np.ones((2, 3, 2, 2), np.float32)
    reference = tvm.topi.testing
    assert reference.conv2d_transpose_nchw_python(data, weights, (2, 2), (0, 0), (1, 1)).shape == (1, 3, 7, 7)
    assert reference.conv1d_transpose_ncw_python(data[0], weights[0], 2, 0, output_padding=1).shape == (2, 2, 7)
    channels = np.arange(8, dtype=np.float32).reshape(1, 8, 1, 1)
    made = [reference.depth_to_space_python(channels, 2, mode) for mode in ("DCR", "CRD")]
    assert [m[0, 0].ravel().tolist() for m in made] == [[0, 2, 4, 6], [0, 1, 2, 3]]
    boxes = np.array([[0, 0, 0, 2, 2]], np.float32)
    assert reference.roi_align_nchw_python(data, boxes, (1, 1), 1.0, 2, "max").tolist() == [[[[1]], [[1]]]]


def test_settings_of_passes_change_nothing_or_are_refused() -> None:
    with tvm.transform.PassContext(opt_level=3, config={"tir.disable_vectorize": True}) as context:
        assert context.opt_level == 3
    with pytest.raises(DefinitionError, match="passes of one's own"):
        tvm.transform.PassContext(config={"tir.add_lower_pass": []})
    with pytest.raises(DefinitionError, match="no setting 'vectorise'"):
        tvm.transform.PassContext(config={"vectorise": True})


def test_a_setting_that_is_no_word_is_refused() -> None:
    with pytest.raises(DefinitionError, match="no setting 3: those of TVM begin with"):
        tvm.transform.PassContext(config={3: 1})  # type: ignore[dict-item]


def test_a_folder_lives_as_long_as_it_is_held() -> None:
    folder = tvm.contrib.utils.tempdir()
    Path(folder.relpath("a")).write_text("1", encoding="utf-8")
    assert folder.listdir() == ["a"] and (folder / "a").exists()
    folder.remove()
    assert not Path(folder.path).exists()


def test_clang_is_asked_for_or_missed() -> None:
    code = 'extern "C" int f(int a) {\n return a + 1; }\n'
    if shutil.which("clang"):
        assert "define" in tvm.contrib.clang.create_llvm(code)
    else:
        with pytest.raises(TargetError, match="no clang"):
            tvm.contrib.clang.create_llvm(code)


def test_dtypes_have_parts() -> None:
    assert [(tvm.DataType(name).bits, tvm.DataType(name).type_code) for name in ("int8", "bool", "float64")] == [
        (8, 0),
        (1, 1),
        (64, 2),
    ]
    assert tvm.runtime.DataType("bfloat16").type_code == 4 and tvm.DataType("float32") == "float32"
    assert te.placeholder((4,), tvm.DataType(np.float16)).dtype == "float16"
    assert (tvm.DataType("bool").itemsize, tvm.DataType("int64").lanes) == (1, 1)
    with pytest.raises(DefinitionError, match="unknown dtype 'float32x4'"):
        tvm.DataType("float32x4")


def test_containers_are_those_of_python() -> None:
    assert isinstance(te.placeholder((4, 5)).shape, tvm.ir.container.Array) and tvm.ir.Map is dict
    assert isinstance("text", tvm.tir.StringImm) and isinstance("text", tvm.runtime.String)


def test_lines_of_slices() -> None:
    def inside(cut: tuple[int, int, int], extent: int) -> Any:
        return te.compute((extent,), lambda i: topi.utils.within_index(*cut, i).astype("int32"))

    def place(cut: tuple[int, int, int], extent: int) -> Any:
        return te.compute((extent,), lambda i: topi.utils.make_idx(*cut, extent, i))

    for cut, extent in (((1, 9, 3), 10), ((8, 2, -2), 10), ((0, 4, 1), 4)):
        chosen = range(*cut)
        assert te.evaluate(partial(inside, cut, extent)).tolist() == [int(i in chosen) for i in range(extent)]
        found = te.evaluate(partial(place, cut, extent))
        assert [found[i] for i in chosen] == list(range(len(chosen)))
    assert topi.utils.nchw_pack_layout("NCHW4n4c") and not topi.utils.nchw_pack_layout("NCHW4c")
    assert topi.utils.nchw_xc_layout("NCHW16c") and not topi.utils.nchw_xc_layout("NCHW")


def test_objects_are_linked_to_a_library(tmp_path: Path) -> None:
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: te.exp(A[i]) + 1, name="B")
    f = tvm.build(te.create_schedule(B.op), [A, B], target="llvm", name="added")
    f.save(str(tmp_path / "added.o"))
    tvm.contrib.cc.create_shared(str(tmp_path / "added.so"), [str(tmp_path / "added.o")])
    again = tvm.contrib.dlpack.to_pytorch_func(tvm.runtime.load_module(tmp_path / "added.so"))
    x, y = np.zeros(8, np.float32), np.empty(8, np.float32)
    again(x, y)
    assert y.tolist() == [2.0] * 8
    with pytest.raises(TargetError, match="failed"):
        tvm.contrib.cc.create_shared(str(tmp_path / "none.so"), str(tmp_path / "none.o"))


def test_loops_are_text_by_the_names_of_modules(capsys: pytest.CaptureFixture[str]) -> None:
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1, name="B")
    lowered = tvm.lower(te.create_schedule(B.op), [A, B])
    lowered.show()
    assert lowered.script() == lowered.astext() == str(lowered)
    assert capsys.readouterr().out == f"{lowered}\n"


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("from tensorlang import relay", "tensorlang.from_onnx and tensorlang.from_torch read networks"),
        ("import tensorlang.relay", "tensorlang.from_onnx and tensorlang.from_torch read networks"),
        ("from tensorlang.relay import testing", "tensorlang.from_onnx and tensorlang.from_torch read networks"),
        ("from tensorlang.contrib import graph_executor", r"y = model\(x\)"),
        ("from tensorlang.autotvm import graph_tuner", "model.tune"),
    ],
)
def test_names_that_are_imported_and_missing_say_what_to_do(line: str, advice: str) -> None:
    with pytest.raises(ImportError, match=f"cannot import name .*TVM has it, tensorlang does not; .*{advice}"):
        exec(line)


def test_nothing_else_of_auto_scheduler_is_missing() -> None:
    context = tvm.auto_scheduler.LocalRPCMeasureContext(timeout=3.0, min_repeat_ms=300)
    assert context.runner == tvm.auto_scheduler.LocalRunner(3.0, 3, 1, 300, 0.0)
    x = te.placeholder((16,), name="x")
    task = tvm.auto_scheduler.SearchTask(lambda: [x, te.compute((16,), lambda i: x[i] * 2, name="y")], (), "llvm")
    options = tvm.auto_scheduler.TuningOptions(num_measure_trials=1, verbose=0)
    s, args = tvm.auto_scheduler.auto_schedule(task, tuning_options=options)
    values, out = np.arange(16, dtype=np.float32), np.empty(16, np.float32)
    tvm.build(s, args)(values, out)
    assert out.tolist() == (values * 2).tolist()


def test_products_by_the_blas_of_numpy() -> None:
    rng = np.random.default_rng(0)
    for rank in (2, 3):
        a, b = (
            rng.integers(-4, 5, shape).astype(np.float32) for shape in ((2, 4, 3)[3 - rank :], (2, 5, 4)[3 - rank :])
        )
        A, B = te.placeholder(a.shape, name="A"), te.placeholder(b.shape, name="B")
        multiply = tvm.contrib.cblas.matmul if rank == 2 else tvm.contrib.cblas.batch_matmul
        C = multiply(A, B, transa=True, transb=True)
        D = te.compute(C.shape, lambda *i, C=C: C(*i) + 1, name="D")
        out = np.empty(D.shape, np.float32)
        tvm.build(te.create_schedule(D.op), [A, B, D], target="llvm")(a, b, out)
        np.testing.assert_array_equal(out, np.swapaxes(a, -1, -2) @ np.swapaxes(b, -1, -2) + 1)
        with pytest.raises(DefinitionError, match=f"wants two tensors of {rank} dimensions"):
            multiply(A, te.placeholder((5,)))
