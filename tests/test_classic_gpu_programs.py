"""GPU programs of classic te: right on threads in lockstep and on OpenCL, and compiled for CUDA.

The programs are in tests/classic. Against TVM, their import lines alone differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

import tensorlang as tvm
from tensorlang import autotvm, te
from tensorlang.autotune.importers.ansor_steps import replay_steps
from tensorlang.errors import MissingDependency, TargetError
from tensorlang.runtime.host_program import device_kernels
from tensorlang.target.c_source import CUDA, module_source
from tensorlang.testing import check_schedule
from tests.autotune.importers.programs import conv2d_layer
from tests.autotune.importers.test_ansor_steps import DEVICE
from tests.classic import convolutions, elementwise, products, reductions, scans
from tests.device_targets import DEVICE_TARGETS
from tests.programs import Case
from tests.target.cuda.compiled import needs_nvrtc

PROGRAMS: dict[str, tuple[Callable[[], Case], Mapping[str, int]]] = {
    "vector add": (elementwise.vector_add, {"n": 100}),
    "exp in strides of the grid": (elementwise.grid_stride_exp, {"n": 50}),
    "two values in cache": (elementwise.two_values_in_cache, {}),
    "transpose": (elementwise.transpose, {}),
    "gemm": (products.tiled_gemm, {}),
    "gemm with double buffers": (partial(products.tiled_gemm, double_buffer=True), {}),
    "gemm on virtual threads": (products.virtual_threads_gemm, {}),
    "row sum": (reductions.row_sum, {"n": 40, "m": 37}),
    "row sum by threads": (reductions.row_sum_by_threads, {"n": 40, "m": 37}),
    "window sums": (reductions.window_sums, {"n": 13}),
    "product of rows": (reductions.product_of_rows, {"n": 4, "m": 7}),
    "sum, then elementwise": (reductions.sum_then_elementwise, {}),
    "argmax": (reductions.argmax_of_rows, {}),
    "argmax by threads": (reductions.argmax_by_threads, {}),
    "softmax of blocks": (reductions.softmax_of_blocks, {}),
    "softmax of warps": (reductions.softmax_of_warps, {}),
    "cumulative sum": (scans.cumulative_sum, {"m": 5, "n": 20}),
    "cumulative sum by shared threads": (scans.cumulative_sum_by_shared_threads, {"m": 5, "n": 20}),
    "scan of two stages": (scans.stages_in_a_step, {"m": 4, "n": 40}),
    "scan of two states": (scans.two_states, {"m": 4, "l": 18}),
    "recurrent layer": (scans.recurrent_layer, {}),
    "convolution in HWCN": (convolutions.hwcn_convolution, {}),
    "depthwise convolution": (convolutions.depthwise, {}),
    "depthwise convolution with relu": (partial(convolutions.depthwise, relu=True), {}),
}


@pytest.fixture(params=DEVICE_TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    """A target that runs threads."""
    return str(request.param)


@cache
def case_of(name: str) -> Case:
    """A program, for several tests to build."""
    return PROGRAMS[name][0]()


def compiled(case: Case) -> Any:
    """The program for CUDA, compiled."""
    return tvm.build(case.s, case.args, target="cuda -arch=sm_80")


def printed(case: Case) -> str:
    """The program as CUDA text."""
    return module_source(device_kernels(tvm.lower(case.s, case.args, target="cuda").kernel), CUDA).text


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, target: str) -> None:
    s, args = case_of(name)
    sizes = PROGRAMS[name][1]
    # Threads find the largest element in an order of their own: all are different.
    distinct = np.random.default_rng(0).permutation(270).reshape(6, 45).astype(np.float32)
    inputs = {"val": distinct} if name.startswith("argmax") else {}
    check_schedule(s, args, sizes, targets=(target,), inputs=inputs)


@pytest.mark.sampled(6)
@needs_nvrtc
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_compiles_for_cuda(name: str) -> None:
    kernel = compiled(case_of(name))
    assert "__global__" in kernel.source("cuda")
    assert kernel.report is not None and "spilled" not in str(kernel.report)


def test_first_program_of_the_tutorials(target: str) -> None:
    tgt_gpu: Any = tvm.target.Target(target=target, host="llvm")
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.placeholder((n,), name="B")
    C = te.compute(A.shape, lambda i: A[i] + B[i], name="C")
    s = te.create_schedule(C.op)
    bx, tx = s[C].split(C.op.axis[0], factor=64)
    s[C].bind(bx, te.thread_axis("blockIdx.x"))
    s[C].bind(tx, te.thread_axis("threadIdx.x"))
    with tgt_gpu:
        assert "threadIdx.x" in str(tvm.lower(s, [A, B, C], simple_mode=True))
        fadd = tvm.build(s, [A, B, C], name="myadd")

    dev = tvm.device(tgt_gpu.kind.name, 0)
    assert dev.exist and tvm.runtime.enabled(tgt_gpu.kind.name)
    size = 1024
    a = tvm.nd.array(np.random.uniform(size=size).astype(A.dtype), dev)
    b = tvm.nd.array(np.random.uniform(size=size).astype(B.dtype), dev)
    c = tvm.nd.array(np.zeros(size, dtype=C.dtype), dev)
    fadd(a, b, c)
    tvm.testing.assert_allclose(c.numpy(), a.numpy() + b.numpy())
    assert fadd.time_evaluator(fadd.entry_name, dev, number=2)(a, b, c).mean > 0

    if tgt_gpu.kind.name in ("cuda", "opencl"):
        dev_module = fadd.imported_modules[0]
        assert dev_module.type_key == tgt_gpu.kind.name
        assert ("threadIdx.x" if tgt_gpu.kind.name == "cuda" else "get_local_id(0)") in dev_module.get_source()
    else:
        assert fadd.imported_modules == []


@needs_nvrtc
def test_device_code_without_a_device() -> None:
    targets: Any = tvm.target
    with targets.cuda(arch="sm_80"):
        assert targets.Target.current(allow_none=False).max_num_threads == 1024
        s, args = elementwise.vector_add()
        fadd = tvm.build(s, args)
    assert "blockIdx.x" in fadd.imported_modules[0].get_source()
    assert ".visible .entry main_kernel0" in fadd.imported_modules[0].get_source("ptx")
    if not tvm.cuda(0).exist:
        assert not tvm.testing.device_enabled("cuda")
        with pytest.raises((TargetError, MissingDependency), match=r"CUDA driver|CuPy"):
            fadd(*(np.zeros(4, np.float32) for _ in range(3)))


def test_virtual_threads_are_copies_over_registers() -> None:
    text = str(tvm.lower(*products.virtual_threads_gemm(), target="cuda"))
    assert "C.local: float32[2, 2, 2, 2] in local" in text  # two by two virtual threads, two by two sums each
    assert re.search(r"unrolled k_i in range\(8\):\n +unrolled y_i_o in range\(2\)", text) and "vthread" not in text
    # A virtual thread is as many rows and columns away from the next as there are threads, times the tile of each.
    stored = re.search(r"C\[16 \* blockIdx.y \+ 8 \* y_i_o \+ 2 \* threadIdx.y", text)
    assert stored and text.count("barrier of the block") == 2


def test_extern_stages_are_refused_on_gpus() -> None:
    tvm.register_func("tests.classic.copy", lambda source, made: None, override=True)
    A = te.placeholder((16,), name="A")
    B = te.compute((16,), lambda i: A[i] + 1, name="B")
    E = te.extern((16,), [B], lambda ins, outs: tvm.tir.call_packed("tests.classic.copy", ins[0], outs[0]), name="E")
    s = te.create_schedule(E.op)
    bx, tx = s[B].split(B.op.axis[0], factor=4)
    s[B].bind(bx, te.thread_axis("blockIdx.x"))
    s[B].bind(tx, te.thread_axis("threadIdx.x"))
    with pytest.raises(TargetError, match=r"E calls a Python function \(te.extern\), which no GPU runs"):
        tvm.build(s, [A, E], target="cuda -arch=sm_80")


TILES = {"tile_f": [-1, 2, 4, 1], "tile_y": [-1, 1, 7, 1], "tile_x": [-1, 1, 1, 7], "tile_rc": [-1, 2, 1]}
"""Splits that differ from the first configuration, which is all ones."""


@cache
def convolution_template(most_unrolled: int, explicit: int) -> Case:
    """AutoTVM's template for CUDA at a configuration of four levels of tiles."""
    task = autotvm.task.create("classic/conv2d_no_batching", args=(1, 7, 7, 16, 8, 3, 3, 1), target="cuda")
    assert len(task.config_space) == 302400
    wanted: dict[str, Any] = {**TILES, "tile_ry": [-1, 1, 3], "tile_rx": [-1, 1, 3]}
    wanted |= {"auto_unroll_max_step": most_unrolled, "unroll_explicit": explicit}
    space = task.config_space
    index, step = 0, 1
    for name, options in space.space_map.items():
        values = [getattr(options[k], "size", None) or options[k].val for k in range(len(options))]  # type: ignore[attr-defined]
        index += step * values.index(wanted[name])
        step *= len(values)
    s, args = task.instantiate(space.get(index))
    return Case(s, tuple(args))


def test_autotvm_template(target: str) -> None:
    check_schedule(*convolution_template(0, 0), targets=(target,))


def test_unrolling_of_an_autotvm_template() -> None:
    texts = {asked: printed(convolution_template(*asked)) for asked in ((0, 0), (512, 0), (512, 1))}
    update = re.compile(r"conv2d_local\[.*\] = conv2d_local\[.*\] \+ ")
    loops = {asked: text.count("for (") for asked, text in texts.items()}
    assert len(update.findall(texts[512, 1])) > 20 > 4 >= len(update.findall(texts[512, 0]))
    assert texts[512, 0].count("#pragma unroll") > texts[0, 0].count("#pragma unroll")
    assert loops[512, 1] < loops[512, 0]


@cache
def ansor_record() -> Case:
    """What auto_scheduler found for a convolution with bias and relu on CUDA, as a schedule."""
    tensors = conv2d_layer(1, 4, 4, 4, 3)
    return Case(replay_steps(tensors, DEVICE), tuple(tensors))


def test_record_of_ansor(target: str) -> None:
    check_schedule(*ansor_record(), targets=(target,))


def test_code_of_a_record_of_ansor() -> None:
    text = printed(ansor_record())
    sums = set(re.findall(r"\bconv\[([^]]*)\]", text))
    assert not any("thread" in index or "block" in index for index in sums)  # sums stay in registers
