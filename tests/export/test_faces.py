"""Exported kernels called by TVM-FFI, JAX and ONNX Runtime: what they give, and how mistakes are told."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import dtypes, te, topi
from tensorlang.errors import TargetError
from tensorlang.target.llvm.library.dl import dtype_word
from tests.export.exported import exported, narrow, rows
from tests.profiles import NIGHTLY


def given() -> tuple[Any, Any]:
    a = np.random.default_rng(5).standard_normal((6, 9), np.float32)
    below = a - a.max(axis=1, keepdims=True)
    return a, below * below[:, ::-1]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    faces = ("c", "tvm_ffi", "xla", "onnxruntime")
    made = rows().export(tmp_path_factory.mktemp("faces") / "rows", formats=("so",), faces=faces)
    path: Path = made.files["so"]
    return path


def test_tvm_ffi_calls_it(library: Path) -> None:
    tvm_ffi = pytest.importorskip("tvm_ffi", reason="needs apache-tvm-ffi")
    call = tvm_ffi.load_module(str(library)).rows
    a, wanted = given()
    out = np.zeros_like(a)
    for given_a in (a, tvm_ffi.from_dlpack(a)):
        out[:] = 0
        call(given_a, out)
        np.testing.assert_array_equal(out, wanted)
    for arrays, error, words in (
        ((a,), TypeError, "rows takes 2 tensors: a: float32"),
        ((a, 3), TypeError, r"argument 2 \(back\): expected a tensor"),
        ((a, out.astype(np.float64)), ValueError, r"argument 2 \(back\): expected dtype float32"),
        ((a, a), ValueError, "overlaps another argument"),
        ((a, out[:, ::2]), ValueError, "shape"),
    ):
        with pytest.raises(error, match=words):
            call(*(tvm_ffi.from_dlpack(v) if isinstance(v, np.ndarray) else v for v in arrays))


def test_tvm_ffi_takes_tensors_of_pytorch(library: Path) -> None:
    tvm_ffi = pytest.importorskip("tvm_ffi", reason="needs apache-tvm-ffi")
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    a, wanted = given()
    out = torch.zeros(a.shape)
    tvm_ffi.load_module(str(library)).rows(torch.from_numpy(a), out)
    np.testing.assert_array_equal(out.numpy(), wanted)


def test_tvm_ffi_takes_arrays_of_jax(library: Path) -> None:
    tvm_ffi = pytest.importorskip("tvm_ffi", reason="needs apache-tvm-ffi")
    jax = pytest.importorskip("jax", reason="needs JAX")
    a, wanted = given()
    out = np.zeros_like(a)
    tvm_ffi.load_module(str(library)).rows(jax.numpy.asarray(a), out)
    np.testing.assert_array_equal(out, wanted)


PROGRAM = """
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <cstdio>
namespace ffi = tvm::ffi;

struct Memory {
  float* data;
  void AllocData(DLTensor* tensor) { tensor->data = data; }
  void FreeData(DLTensor*) {}
};

static ffi::Tensor over(float* data, int64_t rows) {
  return ffi::Tensor::FromNDAlloc(Memory{data}, {rows, 3}, DLDataType{kDLFloat, 32, 1}, DLDevice{kDLCPU, 0});
}

int main(int, char** words) {
  float a[6] = {1, 5, 2, 4, 6, 3}, out[6];
  ffi::Function rows = ffi::Module::LoadFromFile(words[1])->GetFunction("rows").value();
  rows(over(a, 2), over(out, 2));
  for (float value : out) std::printf("%g ", value);
  try {
    rows(over(a, 2), over(out, 1));
  } catch (const ffi::Error& error) {
    std::printf("%s", error.kind().c_str());
  }
}
"""


@pytest.mark.skipif(not NIGHTLY, reason="headers of TVM-FFI take seconds to compile")
def test_programs_in_cxx_call_it_by_tvm_ffi(library: Path, tmp_path: Path) -> None:
    pytest.importorskip("tvm_ffi", reason="needs apache-tvm-ffi")
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("needs a compiler for C++")
    (tmp_path / "main.cpp").write_text(PROGRAM)
    flags = {
        what: subprocess.run(
            [sys.executable, "-m", "tvm_ffi.config", f"--{what}"], capture_output=True, text=True, check=True
        ).stdout.split()
        for what in ("cxxflags", "ldflags", "libs", "libdir")
    }
    linked = [*flags["ldflags"], *flags["libs"], f"-Wl,-rpath,{flags['libdir'][0]}"]
    subprocess.run([compiler, "main.cpp", *flags["cxxflags"], *linked, "-o", "main"], cwd=tmp_path, check=True)
    told = subprocess.run([tmp_path / "main", library], capture_output=True, text=True, check=True).stdout
    assert told == "12 0 12 6 0 6 ValueError"


def test_without_tvm_ffi_errors_are_codes(tmp_path: Path) -> None:
    kernel = exported(rows(), tmp_path, "rows", faces=("tvm_ffi",))
    assert kernel.library.__tvm_ffi_rows(None, None, 0, None) == -1


def test_jax_calls_it(library: Path) -> None:
    jax = pytest.importorskip("jax", reason="needs JAX")
    function = ctypes.CDLL(str(library)).rows_xla
    jax.ffi.register_ffi_target("tests.rows", jax.ffi.pycapsule(function), platform="cpu")

    def call(x: Any, shape: Any = None) -> Any:
        result = jax.ShapeDtypeStruct(shape or x.shape, np.float32)
        return jax.ffi.ffi_call("tests.rows", result, vmap_method="sequential")(x)

    a, wanted = given()
    np.testing.assert_array_equal(jax.jit(call)(a), wanted)
    np.testing.assert_array_equal(jax.vmap(call)(np.stack([a, -a]))[0], wanted)
    with pytest.raises(Exception, match=r"argument 2 \(back\): expected the shape \[m, n\]"):
        jax.jit(lambda x: call(x, (3, 3)))(a).block_until_ready()
    with pytest.raises(Exception, match="rows: a: expected dtype float32"):
        jax.jit(call)(a.astype(np.int32)).block_until_ready()


def test_faces_that_cannot_be(tmp_path: Path) -> None:
    a = te.placeholder((2 * te.var("n"),), name="a")
    k = te.reduce_axis((0, te.var("n")), "k")
    sized = te.compute((1,), lambda i: te.sum(a[2 * k], axis=k), name="sized")
    kernel = tensorlang.build(te.create_schedule(sized.op), [a, sized])
    assert "sized_dl" not in kernel.export(tmp_path / "sized", formats=("h",)).files["h"].read_text()
    for face in ("tvm_ffi", "xla", "onnxruntime"):
        with pytest.raises(TargetError, match=f"the face {face} reads sizes from shapes"):
            kernel.export(tmp_path / "sized", faces=(face,))


@te.hybrid.script
def running(a: Any) -> Any:
    for i in range(1, a.shape[0]):
        a[i] = a[i] + a[i - 1]
    return a


def test_what_is_updated_in_place(tmp_path: Path) -> None:
    a = te.placeholder((te.var("n"),), name="a")
    out = running(a)
    kernel = tensorlang.build(te.create_schedule(out.op), [out])
    made = kernel.export(tmp_path / "running", faces=("c", "tvm_ffi"))
    assert "int32_t running(float *TL_RESTRICT a, int64_t n);" in made.files["h"].read_text()
    values = np.arange(6, dtype=np.float32)
    tensorlang.load(made.files["so"])(values)
    np.testing.assert_array_equal(values, [0, 1, 3, 6, 10, 15])
    with pytest.raises(TargetError, match="a is both; leave xla out of faces"):
        kernel.export(tmp_path / "running", faces=("xla",))
    with pytest.raises(TargetError, match="a is both; leave onnxruntime out of faces"):
        kernel.export(tmp_path / "running", faces=("onnxruntime",))


def test_every_dtype_has_its_number(tmp_path: Path) -> None:
    kernel, (a, *outs) = narrow()
    made = kernel.export(tmp_path / "narrow", formats=("so",), faces=("tvm_ffi", "xla"))
    wanted = [np.zeros_like(out) for out in outs]
    kernel(a, *wanted)
    jax = pytest.importorskip("jax", reason="needs JAX")
    target = jax.ffi.pycapsule(ctypes.CDLL(str(made.files["so"])).narrow_xla)
    jax.ffi.register_ffi_target("tests.narrow", target, platform="cpu")
    with jax.enable_x64(True):
        results = [jax.ShapeDtypeStruct(out.shape, out.dtype) for out in outs]
        found = jax.ffi.ffi_call("tests.narrow", results)(a)
        assert [np.asarray(v).tobytes() for v in found] == [v.tobytes() for v in wanted]
    tvm_ffi = pytest.importorskip("tvm_ffi", reason="needs apache-tvm-ffi")
    for name in dtypes.TABLE:
        known = tvm_ffi.dtype(name)
        assert dtype_word(name) == known.type_code | known.bits << 8 | known.lanes << 16


def session(libraries: Sequence[Path], nodes: Sequence[tuple[str, list[str], list[str]]]) -> Any:
    """A session of ONNX Runtime for a graph of operators by these libraries: inputs x, ..., outputs y, ..."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    onnx = pytest.importorskip("onnx", reason="needs onnx")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are told by exceptions
    for path in libraries:
        options.register_custom_ops_library(str(path))
    make = onnx.helper
    made = [make.make_node(name, given, found, domain=f"tensorlang.{name}") for name, given, found in nodes]
    names = dict.fromkeys(n for _, given, found in nodes for n in (*given, *found))
    values = {n: make.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in names if n[0] in "xy"}
    bare = [onnx.ValueInfoProto(name=n) for n in names if n.startswith("y")]
    graph = make.make_graph(made, "g", [v for n, v in values.items() if n.startswith("x")], bare)
    versions = [make.make_opsetid("", 17), *(make.make_opsetid(f"tensorlang.{name}", 1) for name, _, _ in nodes)]
    model = make.make_model(graph, opset_imports=versions, ir_version=9)
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def test_onnxruntime_calls_it(library: Path, tmp_path: Path) -> None:
    """Two libraries, each with an operator, one behind the other; sizes are those of each call."""
    n, m = te.var("n"), te.var("m")
    x, w = te.placeholder((n, m), name="x"), te.placeholder((), name="w")
    twice = te.compute((n, m + 1), lambda i, j: te.if_then_else(j < m, x[i, j] * w[()], 1.0), name="twice")
    kernel = tensorlang.build(te.create_schedule(twice.op), [x, w, twice])
    other = kernel.export(tmp_path / "wider", formats=("so",), faces=("onnxruntime",)).files["so"]
    run = session([library, other], [("rows", ["x"], ["t"]), ("wider", ["t", "x_w"], ["y"])])
    a, wanted = given()
    for rows_of in (6, 2, 0):
        (found,) = run.run(None, {"x": a[:rows_of], "x_w": np.array(3, np.float32)})
        np.testing.assert_array_equal(found, np.pad(3 * wanted[:rows_of], ((0, 0), (0, 1)), constant_values=1))
    with pytest.raises(Exception, match=r"rows: a: expected 2 dimensions, of a: float32\[m, n\]"):
        run.run(None, {"x": a[0], "x_w": np.array(3, np.float32)})
    with pytest.raises(Exception, match="wider: w: expected 0 dimensions"):
        run.run(None, {"x": a, "x_w": a})


def test_onnxruntime_says_what_does_not_fit(tmp_path: Path) -> None:
    x, w = te.placeholder((3, te.var("k")), name="x"), te.placeholder((te.var("k"), 2), name="w")
    product = topi.matmul(x, w)
    kernel = tensorlang.build(te.create_schedule(product.op), [x, w, product])
    library = kernel.export(tmp_path / "fits", formats=("so",), faces=("onnxruntime",))
    run = session([library.files["so"]], [("fits", ["x", "x_w"], ["y"])])
    ones = np.ones((3, 4), np.float32)
    np.testing.assert_array_equal(run.run(None, {"x": ones, "x_w": np.ones((4, 2), np.float32)})[0], np.full((3, 2), 4))
    with pytest.raises(Exception, match=r"fits: argument 2 \(w\): expected the shape \[k, 2\]"):
        run.run(None, {"x": ones, "x_w": np.ones((5, 2), np.float32)})
