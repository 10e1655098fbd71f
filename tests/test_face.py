"""The names that a classic te program uses, after `import tensorlang as tvm`."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tensorlang as tvm
from tensorlang import te
from tensorlang.errors import ArgumentError, TargetError

OFFERED = {
    "tensorlang": (
        "te tir nd runtime target testing topi autotune errors build lower convert cpu cuda device gpu opencl "
        "register_func get_global_func DefinitionError ScheduleError TargetError TensorlangError __version__"
    ),
    "tensorlang.te": (
        "create_prim_func gradient scan recurrence "
        "create_schedule placeholder compute extern reduce_axis var size_var const thread_axis tag_scope comm_reducer "
        "sum prod min max all any if_then_else div floordiv floormod truncdiv truncmod indexdiv indexmod min_value "
        "max_value infinity abs ceil clz copysign cos cosh erf exp exp10 exp2 floor fmod hypot isfinite isinf isnan "
        "ldexp log log10 log1p log2 nearbyint popcount pow power round rsqrt sigmoid sin sinh sqrt tan tanh trunc "
        "Tensor TensorSlice PlaceholderOp ComputeOp ExternOp"
    ),
    "tensorlang.tir": (
        "const if_then_else all any Select min_value max_value indexdiv indexmod floordiv floormod truncdiv truncmod "
        "Var SizeVar IterVar PrimExpr IntImm FloatImm Cast call_packed likely shift_left shift_right exp log tanh "
        "sqrt erf sigmoid power popcount min max sum ceildiv"
    ),
    "tensorlang.nd": "array empty NDArray cpu cuda device gpu numpyasarray opencl",
    "tensorlang.runtime": "convert",
    "tensorlang.target": "Target cuda",
    "tensorlang.testing": "assert_allclose",
}


@pytest.mark.parametrize("module", OFFERED)
def test_names_of_classic_te_exist(module: str) -> None:
    home = sys.modules.get(module) or __import__(module, fromlist=["x"])
    missing = [name for name in OFFERED[module].split() if not hasattr(home, name)]
    assert missing == []
    assert set(OFFERED[module].split()) <= {*dir(home), "__version__"}


@pytest.mark.parametrize(
    ("module", "name", "advice"),
    [
        (tvm, "relay", "tensorlang.from_onnx and tensorlang.from_torch read networks"),
        (tvm, "metal", "GPUs are the targets 'cuda' and 'opencl'"),
        (tvm, "meta_schedule", "tensorlang tune"),
        (te, "trace", "use te.extern"),
        (tvm.tir, "Schedule", "use te.create_schedule"),
    ],
)
def test_absent_names_say_what_to_do(module: Any, name: str, advice: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{name}': TVM has it, tensorlang does not; .*{advice}"):
        getattr(module, name)


def test_unknown_names_are_plain_attribute_errors() -> None:
    with pytest.raises(AttributeError, match=r"^module 'tensorlang' has no attribute 'plaecholder'$"):
        tvm.plaecholder  # type: ignore[attr-defined]
    with pytest.raises(ImportError):
        exec("from tensorlang import plaecholder")


def test_import_is_light() -> None:
    program = """
import sys
import tensorlang
from tensorlang import te
te.placeholder
heavy = {"islpy", "llvmlite", "xgboost", "rich", "click", "hypothesis", "dask"} & set(sys.modules)
print("loaded", *sorted(heavy))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["loaded"]


def test_functions_stay_functions_when_submodules_are_imported_first() -> None:
    program = "import tensorlang.driver\nimport tensorlang as t\nprint(callable(t.build), callable(t.lower))"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["True", "True"]


def test_ndarray() -> None:
    a = tvm.nd.array(np.arange(6, dtype="float32").reshape(2, 3), tvm.cpu(0))
    assert (a.shape, a.dtype, a.ndim, len(a), str(a.device)) == ((2, 3), "float32", 2, 2, "cpu(0)")
    assert a.data.ctypes.data % 64 == 0 and a.ctx == a.device
    copy = a.numpy()
    copy[0, 0] = 9
    assert a.asnumpy()[0, 0] == 0
    a[:] = 7
    assert a.numpy().tolist() == [[7] * 3] * 2
    a[1, 2:] = np.array([5])
    assert a[1].tolist() == [7, 7, 5]
    assert "NDArray shape=(2, 3), cpu(0)" in repr(a)


def test_ndarray_is_seen_without_a_copy() -> None:
    a = tvm.nd.empty((4,), "int32")
    a[:] = 3
    np.asarray(a)[1] = 8
    np.from_dlpack(a).tolist()
    assert a.numpy().tolist() == [3, 8, 3, 3]
    assert np.asarray(a, "float64").dtype == np.float64
    assert np.array(a).ctypes.data != a.data.ctypes.data
    assert a.__dlpack_device__()[0] == 1
    with pytest.raises(ValueError, match="without a copy"):
        a.__array__("float64", copy=False)


def test_ndarray_copies() -> None:
    a, b = tvm.nd.array(np.arange(4.0)), tvm.nd.empty((4,), "float64")
    assert a.copyto(b) is b and b.numpy().tolist() == [0, 1, 2, 3]
    c = a.copyto(tvm.cpu(0))
    assert not c.same_as(a) and c.same_as(c) and c.numpy().tolist() == [0, 1, 2, 3]
    assert b.copyfrom(np.ones(4, "float32")).numpy().tolist() == [1] * 4
    with pytest.raises(ArgumentError, match=r"needs shape \(4,\), got \(5,\)"):
        b.copyfrom(np.ones(5))
    with pytest.raises(ArgumentError, match="needs dtype float64, got float32"):
        a.copyto(tvm.nd.empty((4,)))
    with pytest.raises(ArgumentError, match="needs an NDArray or a device, got list"):
        a.copyto([0])  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2", "float16", "bool", "uint8", "int64"])
def test_empty_of_every_kind(dtype: str) -> None:
    a = tvm.nd.empty((3, 2), dtype)
    a[:] = 1
    assert a.dtype == dtype and a.numpy().astype(int).sum() == 6
    assert tvm.nd.empty((0, 4), dtype).shape == (0, 4) and tvm.nd.empty((), dtype).shape == ()
    assert tvm.nd.array(a).dtype == dtype


def test_empty_is_checked() -> None:
    with pytest.raises(ArgumentError, match="extents are zero or more"):
        tvm.nd.empty((2, -1))
    with pytest.raises(ArgumentError, match="mem_scope must be global"):
        tvm.nd.empty((2,), mem_scope="texture")
    assert tvm.nd.numpyasarray(np.ones(3, ml_dtypes.bfloat16)).dtype == "bfloat16"


def test_devices() -> None:
    assert tvm.device("llvm", 0) == tvm.device("cpu") == tvm.cpu(0) == tvm.nd.cpu()
    assert tvm.cpu(0).exist and not tvm.cpu(7).exist
    tvm.cpu().sync()
    assert tvm.device("cuda", 1) == tvm.nd.Device("cuda", 1)
    with pytest.raises(TargetError, match="unknown device 'metla'; known: cpu, llvm, interpreter, cuda, opencl"):
        tvm.device("metla", 0)
    assert not tvm.device("metal", 0).exist


def test_tir_constructors() -> None:
    one, half = tvm.tir.IntImm("int64", 1), tvm.tir.FloatImm("float16", 0.5)
    assert (one.dtype, one.value, half.dtype, half.value) == ("int64", 1, "float16", 0.5)
    assert isinstance(one, tvm.tir.IntImm) and not isinstance(one, tvm.tir.FloatImm)
    assert isinstance(half, tvm.tir.FloatImm) and not isinstance(te.var("n"), tvm.tir.IntImm)
    x = tvm.tir.Var("x", "float32")
    assert str(tvm.tir.Select(x > 1, x, 0)) == "select(x > 1.0, x, 0.0)"
    assert str(tvm.tir.Cast("int8", x)) == "int8(x)"
    assert tvm.tir.const(3).dtype == "int32" and tvm.tir.const(3, "int8").dtype == "int8"


def test_convert() -> None:
    assert tvm.convert is tvm.runtime.convert
    one, (two, text) = tvm.runtime.convert([1, (2.5, "x")])
    assert (str(one), str(two), text) == ("1", "2.5", "x")
    assert tvm.runtime.convert({"a": True})["a"].dtype == "bool"
    x = te.var("x")
    assert tvm.runtime.convert(x) is x


def test_assert_allclose() -> None:
    a = tvm.nd.array(np.array([1.0, 2.0]))
    tvm.testing.assert_allclose(a, np.array([1.0, 2.0 + 1e-9]))
    tvm.testing.assert_allclose(np.ones(2, ml_dtypes.bfloat16), [1, 1.01], rtol=0.1)
    with pytest.raises(AssertionError, match="Mismatched elements: 1 / 2"):
        tvm.testing.assert_allclose(a, np.array([1.0, 2.1]))
    with pytest.raises(AssertionError, match="shapes differ"):
        tvm.testing.assert_allclose(a, np.ones((2, 1)))


def test_what_is_shown_of_rooms_is_public() -> None:
    """Completion offers what users call, and none of what a room is made of."""
    from tensorlang import autotune, te, topi

    rooms = {tvm: "build te errors threads", te: "compute placeholder create_schedule exp hybrid lookup"} | {
        topi: "matmul softmax image schedule",
        autotune: "tune create_task record",
    }
    hidden = {
        "offer",
        "refuse",
        "advise",
        "words",
        "listing",
        "check",
        "domain",
        "Any",
        "operation",
        "convolution",
        "loop",
    }
    for room, names in rooms.items():
        assert set(names.split()) <= set(dir(room)) and not hidden & set(dir(room))
        assert all(hasattr(room, name) for name in dir(room))
