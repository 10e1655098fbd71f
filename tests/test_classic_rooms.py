"""What classic programs call beside te: utilities of topi, references, settings, folders."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path

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
        ("tensorlang.topi.nn", "tensorlang.classic.nn"),
        ("tensorlang.topi.image", "tensorlang.topi"),
        ("tensorlang.topi.nn.utils", "tensorlang.classic.constants"),
        ("tensorlang.runtime.ndarray", "tensorlang.nd"),
        ("tensorlang.contrib.sparse", "tensorlang.topi.sparse"),
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
    D = te.compute((4,), lambda i: C[i] * 2, name="D", tag="mine")
    E = te.compute((4,), lambda i: D[i] - 1, name="E")
    s, called = te.create_schedule(E.op), []
    topi.utils.traverse_inline(s, E.op, lambda op: called.append(op.name))
    assert sorted(called) == ["B", "C", "D", "E"] and [stage.name for stage in s.stages] == ["A", "C", "D", "E"]


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
