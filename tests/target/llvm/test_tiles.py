"""The matrix unit of Intel's CPUs: its products of any size, what is set up around them, and who chooses them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorlang
from tensorlang import te, topi
from tensorlang.target import parse
from tensorlang.target.detect import host_cpu
from tensorlang.target.llvm.instructions import INSTRUCTIONS, Tiles
from tensorlang.target.llvm.instructions import tiles_of as named
from tensorlang.target.llvm.library.pick import emit_pick
from tensorlang.target.llvm.text import Module
from tensorlang.te.operation import Tensor
from tensorlang.testing import check_intrinsic, check_schedule
from tests.programs import Case
from tests.thoroughness import draws

WITH_TILES = "llvm -mcpu=sapphirerapids"
WITHOUT = f"{WITH_TILES} -mattr=-amx-int8"
SIZES = [
    Tiles("uint8", "int8", (32, 1), 32, (1, 1, 16)),
    Tiles("int8", "int8", (7, 1), 16, (1, 1, 6)),
    Tiles("int8", "uint8", (1, 21), 32, (1, 2, 5), right=(2, 1)),
    Tiles("uint8", "uint8", (2, 5), 16, (2, 1, 18), down=(3, 2)),
    Tiles("uint8", "int8", (2, 7), 32, (3, 1, 12), (2, 1), (6, 4), joint=True),
    Tiles("uint8", "int8", (7, 7), 16, (3, 1, 10), right=(8, 1), joint=True),
    Tiles("int8", "int8", (8, 3), 16, (1, 1, 16), down=(2, 1)),
    Tiles("bfloat16", "bfloat16", (25, 1), 32, (1, 1, 24)),
]
needs_tiles = pytest.mark.skipif(
    not {"amx-int8", "amx-bf16"} <= host_cpu().features, reason="this CPU has no matrix unit, or may not use it"
)


@needs_tiles
@pytest.mark.parametrize("tiles", SIZES, ids=lambda tiles: tiles.name)
def test_they_do_what_they_declare(tiles: Tiles) -> None:
    check_intrinsic(te.intrin(tiles.name))


@needs_tiles
@settings(max_examples=draws(4, 200))
@given(st.data())
def test_tiles_of_any_size(data: Any) -> None:
    def number(low: int, high: int) -> int:
        return int(data.draw(st.integers(low, high)))

    kinds = data.draw(st.sampled_from(sorted(INSTRUCTIONS)))
    rows = data.draw(st.sampled_from([(number(1, 32), 1), (1, number(1, 32)), (number(2, 9), number(2, 16))]))
    terms = number(1, 3), number(1, 3), number(1, 40)
    down, right = ((number(1, 3), number(1, 3)) for _ in range(2))
    columns = 16 if min(rows) > 2 else number(1, 2) * 16
    tiles = Tiles(kinds[0], kinds[1], rows, columns, terms, down, right, data.draw(st.booleans()))
    assert named(tiles.name) == tiles
    check_intrinsic(te.intrin(tiles.name))


@pytest.mark.parametrize(
    "name",
    [
        "x86.amx.uint8.float32.32x1x32.1x1x16.1r1.1r1",
        "x86.amx.uint8.int8.33x1x32.1x1x16.1r1.1r1",
        "x86.amx.uint8.int8.32x1x48.1x1x16.1r1.1r1",
        "x86.amx.uint8.int8.0x1x32.1x1x16.1r1.1r1",
        "x86.amx.uint8.int8.32x1x32",
    ],
)
def test_names_of_what_no_register_holds(name: str) -> None:
    with pytest.raises(tensorlang.TensorlangError, match="no intrinsic"):
        te.intrin(name)


def product(m: int, n: int, k: int, data: str = "uint8", weight: str = "int8") -> tuple[Tensor, Tensor, Tensor]:
    A, B = te.placeholder((m, k), data, "A"), te.placeholder((n, k), weight, "B")
    out = "float32" if data == "bfloat16" else "int32"
    return A, B, topi.matmul(A, B, transpose_b=True, out_dtype=out)


def schedule(result: Tensor) -> Any:
    return topi.schedule(result, WITH_TILES)


def instructions(case: Case, word: str) -> int:
    lines = tensorlang.build(case.s, list(case.args), target=WITH_TILES).source("asm").splitlines()
    return sum(word in line.split() for line in lines)


@pytest.mark.parametrize(("dtypes", "word"), [(d, word) for d, word in INSTRUCTIONS.items() if d[1] != "uint8"])
def test_products_take_them(dtypes: tuple[str, str], word: str) -> None:
    """On every machine the same steps, whose meaning the interpreter runs; set up once in a kernel."""
    args = product(40, 24, 72, *dtypes)
    case = Case(schedule(args[-1]), args)
    check_schedule(case.s, list(args), targets=("interpreter",))
    assert (instructions(case, word) >= 1, instructions(case, "ldtilecfg")) == (True, 1)


@needs_tiles
@pytest.mark.sampled(4)
@pytest.mark.parametrize("shape", [(64, 32, 64), (28, 70, 100), (197, 33, 48), (9, 16, 12)])
@pytest.mark.parametrize("dtypes", [("uint8", "int8"), ("int8", "int8"), ("bfloat16", "bfloat16")])
def test_products_of_all_shapes_are_right(shape: tuple[int, int, int], dtypes: tuple[str, str]) -> None:
    args = product(*shape, *dtypes)
    check_schedule(topi.schedule(args[-1]), list(args), targets=("llvm",))


def convolved(image: int, channels: int, kernel: int, stride: int, data: str = "uint8") -> Case:
    x = te.placeholder((1, image, image, channels), data, "x")
    packed = topi.pack_narrow_conv2d(te.placeholder((40, channels, kernel, kernel), "int8", "w"), target=WITH_TILES)
    w = te.placeholder(packed.shape, "int8", "p")
    made = topi.conv2d_narrow(x, w, 40, kernel, stride, kernel // 2, 1, "NHWC", target=WITH_TILES)
    return Case(schedule(made), (x, w, made))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "sizes", [(8, 8, 3, 1), (7, 64, 1, 1), (16, 3, 5, 2), (16, 32, 1, 2)], ids=lambda sizes: "x".join(map(str, sizes))
)
def test_convolutions_take_them(sizes: tuple[int, int, int, int]) -> None:
    case = convolved(*sizes)
    check_schedule(case.s, list(case.args), targets=("interpreter",))
    assert instructions(case, "tdpbusd")
    if {"amx-int8"} <= host_cpu().features:
        check_schedule(case.s, list(case.args), targets=("llvm",))


def test_signed_data_stay_signed() -> None:
    assert instructions(convolved(8, 8, 3, 1, "int8"), "tdpbssd")


@pytest.mark.parametrize("shape", [(17, 32, 68), (11, 32, 64)])
def test_dot_instructions_where_they_are_sooner_done(shape: tuple[int, int, int]) -> None:
    """Where terms are cut into single words: tiles of them take as long to load as whole ones."""
    args = product(*shape)
    case = Case(topi.schedule(args[-1], WITHOUT), args)
    assert [instructions(case, word) > 0 for word in ("tdpbusd", "vpdpbusd")] == [False, True]
    case = Case(schedule(args[-1]), args)
    assert [instructions(case, word) > 0 for word in ("tdpbusd", "vpdpbusd")] == [shape[0] == 11, shape[0] != 11]


def test_two_sizes_in_a_kernel_are_set_up_in_turn() -> None:
    A, B, first = product(32, 32, 64)
    narrow = te.compute((32, 32), lambda i, j: (first[i, j] & 255).astype("uint8"), name="narrow")
    W = te.placeholder((32, 32), "int8", "W")
    second = topi.matmul(narrow, W, transpose_b=True, out_dtype="int32", name="second")
    case = Case(schedule(second), (A, B, W, second))
    assert instructions(case, "ldtilecfg") == 2
    if {"amx-int8"} <= host_cpu().features:
        check_schedule(case.s, list(case.args), targets=("llvm",))


@needs_tiles
def test_threads_set_them_up_each() -> None:
    x, w, made = convolved(56, 16, 3, 1).args
    s = topi.schedule(made, "llvm -num-cores=2")
    assert any("parallel" in line for line in s.trace.to_python().splitlines())
    check_schedule(s, [x, w, made], targets=("llvm",))


def test_libraries_ask_the_system_for_them() -> None:
    texts = {}
    for name, features in (("with", {"amx-int8", "amx-tile", "avx512f"}), ("without", {"avx512f"})):
        module = Module(parse("llvm -mcpu=x86-64"), library=True)
        emit_pick(module, name, [frozenset(features)])
        texts[name] = "\n".join(module.functions)
    assert ["syscall" in text for text in texts.values()] == [True, False]


def test_what_the_system_does_not_allow_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorlang.target.llvm import host

    monkeypatch.setattr(host, "_ASK_FOR_STATE", 0xFFFF)
    _, features = host.this_cpu()
    assert not any(name.startswith("amx-") for name in features)
