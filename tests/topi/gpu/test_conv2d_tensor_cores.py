"""Convolutions on tensor cores: windows, strides, layouts, dtypes and groups against the reference; machine code."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import Any, Literal

import numpy as np
import pytest

import tensorlang
from tensorlang import config, te, topi
from tensorlang.ir.stmt import Kernel
from tensorlang.schedule import Schedule
from tensorlang.schedules.anchor import Anchor
from tensorlang.schedules.default import apply_forms
from tensorlang.schedules.gpu.convolution_tensor_cores import schedule_windows
from tensorlang.schedules.gpu.tensor_cores import WarpTile
from tensorlang.schedules.prepare import prepare
from tensorlang.target import parse
from tensorlang.target.cuda.sass import disassembler
from tensorlang.te.operation import Tensor
from tensorlang.testing import check_schedule
from tensorlang.testing.cuda_emulation import emulate_program, unavailable
from tensorlang.topi.conv2d import conv2d_reference
from tests.target.cuda.compiled import needs_nvrtc
from tests.topi.gpu.device_runs import numbers

SUMS = {"float16": "float32", "bfloat16": "float32", "int8": "int32", "uint8": "int32"}
Sizes = tuple[int, int, int, int, int, int]
"""Images, rows, columns, channels, output channels, and rows and columns of a window."""


def layer(
    n: Any,
    h: int,
    w: int,
    c: int,
    o: int,
    k: int,
    dtype: str = "float16",
    kernel: str = "HWIO",
    **options: Any,
) -> list[Tensor]:
    """Images in NHWC, weights, and their convolution."""
    extents = {"O": o, "I": c // options.get("groups", 1), "H": k, "W": k}
    data = te.placeholder((n, h, w, c), dtype, "data")
    weight = te.placeholder([extents[letter] for letter in kernel], dtype, "weight")
    out = topi.conv2d(data, weight, **options, data_layout="NHWC", kernel_layout=kernel, out_dtype=SUMS[dtype])
    return [data, weight, out]


def product(args: list[Tensor], groups: int = 1) -> Schedule:
    """A schedule whose convolution has become a product of windows and weights."""
    s: Schedule = te.create_schedule(args[-1].op)
    s["conv2d"].windows_product(["nn", "yy", "xx"], ["ry", "rx", "rc"], groups)
    return s


def residual(args: list[Tensor]) -> list[Tensor]:
    """A bias, a residual and relu after a convolution, rounded to the dtype of the data."""
    data, weight, conv = args
    bias, before = te.placeholder((conv.shape[3],), "float32", "bias"), te.placeholder(conv.shape, data.dtype, "before")

    def element(n: Any, y: Any, x: Any, f: Any) -> Any:
        return te.max(conv[n, y, x, f] + bias[f] + before[n, y, x, f].astype("float32"), 0.0).astype(data.dtype)

    return [data, weight, bias, before, te.compute(conv.shape, element, name="out")]


def scheduled(args: list[Tensor], arch: str = "sm_80", tile: WarpTile | None = None) -> Schedule:
    """The library's schedule; by a tile of our own, if there is one."""
    target = parse(f"cuda -arch={arch}")
    if tile is None:
        return topi.schedule(args[-1], target, tuned=False)
    s = product(args)
    with s.proven_together("a tile of our own"):
        schedule_windows(s, Anchor("conv2d", args[-1].op.name, target), tile)
    return s


GROUPS = WarpTile((64, 64), (2, 1), lanes=128, depth=64, stages=2)
CASES: dict[str, tuple[list[Tensor], WarpTile | None]] = {
    "padded": (layer(2, 4, 5, 16, 24, 3, padding=1), None),
    "strides": (layer(1, 9, 10, 16, 24, 3, "bfloat16", strides=2, padding=(0, 1, 2, 0)), None),
    "dilation": (layer(1, 6, 5, 16, 16, 3, padding=2, dilation=2), None),
    "one by one": (layer(2, 5, 5, 32, 40, 1), None),
    "one by one, strides": (layer(2, 6, 5, 32, 40, 1, strides=2), None),
    "windows across steps": (layer(1, 5, 6, 48, 16, 2, padding=1), None),
    "channels of half a step": (layer(1, 5, 6, 8, 16, 2, "bfloat16"), None),
    "inputs side by side": (layer(1, 5, 6, 16, 17, 3, kernel="OHWI", padding=1), None),
    "bytes": (layer(1, 4, 5, 32, 17, 3, "int8", "OHWI", padding=1), None),
    "groups": (layer(1, 4, 5, 32, 32, 3, padding=1, groups=2), None),
    "residual": (residual(layer(1, 5, 6, 16, 24, 3, padding=1)), None),
    "warp groups": (layer(1, 9, 8, 64, 64, 2, kernel="OHWI", padding=1), GROUPS),
}


@cache
def case(name: str) -> Schedule:
    """The schedule of a case, once for all tests."""
    args, tile = CASES[name]
    return scheduled(args, "sm_80" if tile is None else "sm_90a", tile)


@cache
def lowered(name: str) -> Kernel:
    """The program of a case."""
    args, tile = CASES[name]
    target = "cuda -arch=sm_80" if tile is None else "cuda -arch=sm_90a"
    found: Kernel = tensorlang.lower(case(name), args, target=target).kernel
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CASES)
def test_the_interpreter_finds_the_values_and_no_race(name: str) -> None:
    args, s = CASES[name][0], case(name)
    assert "cuda.mma" in str(s.trace) or "cuda.wgmma" in str(s.trace)
    check_schedule(s, args, targets=("interpreter",))


def test_a_symbolic_number_of_images() -> None:
    args = layer(te.var("n"), 5, 5, 16, 24, 3, padding=1)
    check_schedule(scheduled(args), args, {"n": 3}, targets=("interpreter",))


def test_groups_of_channels_are_made_by_warps() -> None:
    args = layer(te.var("n"), 5, 5, 64, 48, 2, kernel="OHWI", groups=2)
    s = scheduled(args, "sm_90a")
    assert "cuda.mma" in str(s.trace) and "cuda.wgmma" not in str(s.trace)
    check_schedule(s, args, {"n": 1}, targets=("interpreter",))


def test_terms_in_parts() -> None:
    args = residual(layer(1, 4, 4, 16, 16, 3, padding=1))
    s = scheduled(args, tile=WarpTile((16, 16), (2, 2), depth=16, stages=2, parts=3))
    assert str(tensorlang.lower(s, args, target="cuda -arch=sm_80")).count("device kernel") == 2
    check_schedule(s, args, targets=("interpreter",))


@pytest.mark.sampled(2)
@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
@pytest.mark.parametrize("mode", ["late", "at_once"])
@pytest.mark.parametrize(
    ("name", "seed"), [*(("padded", seed) for seed in (1, 2, 3)), ("bytes", 3), ("groups", 3), ("warp groups", 3)]
)
def test_the_text_computes_the_convolution(name: str, mode: Literal["late", "at_once"], seed: int) -> None:
    args, program = CASES[name][0], lowered(name)
    data, weight, made = (numbers(tensor) for tensor in args)
    words = (x.view(np.uint16) if x.dtype.itemsize == 2 else x for x in (data, weight, made))
    emulate_program(program, dict(zip((p.name for p in program.params), words, strict=True)), mode=mode, seed=seed)
    oihw = weight.transpose(0, 3, 1, 2) if name in ("bytes", "warp groups") else weight.transpose(3, 2, 0, 1)
    groups = 2 if name == "groups" else 1
    planes = data.transpose(0, 3, 1, 2).astype(made.dtype)
    wanted = conv2d_reference(planes, oihw.astype(made.dtype), padding=1, groups=groups)
    np.testing.assert_array_equal(made, wanted.transpose(0, 2, 3, 1))


def test_padding_is_zeros_that_are_multiplied() -> None:
    args = layer(1, 3, 3, 16, 16, 3, padding=1)
    data, weight, made = (numbers(tensor) for tensor in args)
    weight[0, 0] = np.inf
    tensorlang.build(scheduled(args), args, target="interpreter")(data, weight, made)
    planes, oihw = data.transpose(0, 3, 1, 2), weight.transpose(3, 2, 0, 1)
    with np.errstate(invalid="ignore"):
        wanted = conv2d_reference(planes.astype(np.float32), oihw.astype(np.float32), padding=1)
    np.testing.assert_array_equal(made.transpose(0, 3, 1, 2), wanted)
    assert np.isnan(made[0, 0, 0]).all()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("target", ["llvm", "cuda -arch=sm_75"])
def test_other_targets_lay_the_windows_out(target: str) -> None:
    args = residual(layer(1, 5, 6, 16, 24, 3, padding=1))
    s = product(args)
    apply_forms(s, parse(target))
    assert "cuda.mma" not in str(s.trace)
    check_schedule(s, args, targets=("llvm" if target == "llvm" else "interpreter",))


OTHERWISE: dict[str, tuple[dict[str, Any], str]] = {
    "an odd number of channels": ({"c": 12}, "cuda"),
    "terms that fill no instruction": ({"c": 8, "k": 3}, "cuda"),
    "few output channels": ({"o": 8}, "cuda"),
    "odd output channels side by side": ({"o": 20}, "cuda"),
    "bytes in rows of outputs": ({"c": 32, "dtype": "int8"}, "cuda"),
    "odd output channels of groups": ({"c": 32, "o": 34, "kernel": "OHWI", "groups": 2}, "cuda"),
    "an older GPU": ({}, "cuda -arch=sm_75"),
    "a CPU": ({}, "llvm"),
}


def is_product(out: Tensor, target: str = "cuda") -> bool:
    """Whether the library makes a convolution a product for a target; the program is the same on all."""
    s = te.create_schedule(out.op)
    with parse(target):
        prepare(s, parse(target))
    assert s.original.key == te.create_schedule(out.op).original.key
    return [type(step).__name__ for step in s.trace.steps] == ["WindowsProduct"]


@pytest.mark.parametrize("name", OTHERWISE)
def test_other_convolutions_stay_as_declared(name: str) -> None:
    options, target = OTHERWISE[name]
    *_, out = layer(1, 5, 6, **({"c": 16, "o": 24, "k": 2} | options))
    assert not is_product(out, target)


def test_images_in_planes_stay_as_declared_and_results_of_16_bits_are_products() -> None:
    data, weight = te.placeholder((1, 5, 6, 16), "float16", "data"), te.placeholder((2, 2, 16, 24), "float16", "weight")
    planes = te.placeholder((1, 16, 5, 6), "float16", "planes"), te.placeholder((24, 16, 2, 2), "float16", "filters")
    assert not is_product(topi.conv2d(*planes, out_dtype="float32"))
    assert is_product(topi.conv2d(data, weight, data_layout="NHWC", out_dtype="float32"))
    assert is_product(topi.conv2d(data, weight, data_layout="NHWC"))  # rounded behind sums of 32 bits


RESNET: dict[str, tuple[Sizes, dict[str, Any]]] = {
    "56 x 56": ((16, 56, 56, 64, 64, 3), {"padding": 1}),
    "28 x 28": ((16, 28, 28, 128, 128, 3), {"padding": 1}),
    "14 x 14": ((16, 14, 14, 256, 256, 3), {"padding": 1}),
    "7 x 7": ((16, 7, 7, 512, 512, 3), {"padding": 1}),
    "to 7 x 7": ((16, 14, 14, 512, 512, 3), {"padding": 1, "strides": 2}),
    "one by one": ((16, 14, 14, 1024, 256, 1), {}),
}
BOTH: list[tuple[str, str, str]] = [(name, "sm_80", "HWIO") for name in RESNET]
BOTH += [("to 7 x 7", "sm_90a", "HWIO"), ("28 x 28", "sm_90a", "OHWI")]


@pytest.mark.sampled(2)
@needs_nvrtc
@pytest.mark.parametrize(("name", "arch", "kernel"), BOTH)
def test_the_machine_code(name: str, arch: str, kernel: str) -> None:
    sizes, options = RESNET[name]
    args = layer(*sizes, kernel=kernel, **options)
    with config.override(check=False):
        built: Any = tensorlang.build(scheduled(args, arch), args, target=f"cuda -arch={arch}")
    assert built.report.clean and all(k.stack == 0 for k in built.report.kernels), built.report
    if disassembler() is None:
        pytest.skip("no nvdisasm: pip install nvidia-cuda-nvdisasm")
    found = Counter(re.findall(r"\b([A-Z][A-Z0-9]+(?:\.[A-Z0-9_x]+)*)\b", built.source("sass")))
    assert not [word for word in found if word.startswith(("LDL", "STL", "LDG.E"))]
    assert found["LDGSTS.E.BYPASS.128"] + found["LDGSTS.E.BYPASS.128.ZFILL"] >= 8
    if arch == "sm_90a":
        assert [word for word in found if word.startswith("HGMMA")]
    else:
        fragments = found["LDSM.16.M88.4"] + found["LDSM.16.MT88.4"]
        assert found["HMMA.16816.F32"] >= 16 and fragments <= found["HMMA.16816.F32"] // 2
