"""Exported kernels called from outside: the same bits as in the process, in any host's hands; mistakes have codes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes.util import find_library
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import te, tir
from tensorlang.errors import TargetError
from tensorlang.ir.overflow import exact_limit
from tensorlang.runtime.executable import Executable
from tests.export.exported import (
    DLTensor,
    Host,
    Loaded,
    ParallelFor,
    dl_tensor,
    exported,
    in_turn,
    layer,
    rows,
    two_regions,
)

MAKE: dict[str, Callable[[], Executable]] = {"layer": layer, "two_regions": two_regions, "rows": rows}
SHAPES: dict[str, Callable[[int, int], list[tuple[int, ...]]]] = {
    "layer": lambda m, n: [(48, 64), (96, 64), (96,), (48, 96)],
    "two_regions": lambda m, n: [(n, 40), (n, 40)],
    "rows": lambda m, n: [(m, n), (m, n)],
}
SIZES: dict[str, Callable[[int, int], list[int]]] = {
    "layer": lambda m, n: [],
    "two_regions": lambda m, n: [n],
    "rows": lambda m, n: [m, n],
}


def built(name: str) -> Executable:
    return MAKE[name]()


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Loaded]:
    folder = tmp_path_factory.mktemp("exported")
    return {name: exported(built(name), folder, name) for name in MAKE}


def arrays(name: str, m: int = 7, n: int = 33) -> tuple[list[Any], Any]:
    """Random inputs with an empty output, and what the output has to be: what the kernel gives in this process."""
    *inputs, out = SHAPES[name](m, n)
    rng = np.random.default_rng(0)
    made = [rng.standard_normal(shape, np.float32) for shape in inputs]
    wanted = np.zeros(out, np.float32)
    built(name)(*made, wanted)
    return [*made, np.zeros(out, np.float32)], wanted


@pytest.mark.parametrize("name", MAKE)
def test_gives_the_bits_of_the_process(name: str, libraries: dict[str, Loaded]) -> None:
    for m, n in ((7, 33), (1, 1), (0, 5), (5, 0)):
        given, wanted = arrays(name, m, n)
        assert libraries[name](given, SIZES[name](m, n)) == 0
        np.testing.assert_array_equal(given[-1], wanted)
        given[-1][...] = 0
        assert libraries[name].dl(*map(dl_tensor, given)) == 0
        np.testing.assert_array_equal(given[-1], wanted)


@pytest.mark.covering(1)
@pytest.mark.parametrize("order", [range, lambda n: reversed(range(n))], ids=["forwards", "backwards"])
@pytest.mark.parametrize("name", MAKE)
def test_a_host_may_run_tasks_in_any_order(name: str, order: Any, libraries: dict[str, Loaded]) -> None:
    host, asked = in_turn(lambda tasks: list(order(tasks)))
    given, wanted = arrays(name, 11, 33)
    assert libraries[name].run(given, SIZES[name](11, 33), host, threads=5) == 0
    np.testing.assert_array_equal(given[-1], wanted)
    assert asked == {"layer": [], "two_regions": [5, 5], "rows": [5]}[name]


def test_a_host_may_have_threads_of_its_own(libraries: dict[str, Loaded]) -> None:
    with ThreadPoolExecutor(3) as pool:

        def run(_: Any, tasks: int, task: Any, arg: Any) -> None:
            count = min(tasks, 3)  # fewer than it was asked for
            list(pool.map(lambda index: task(arg, index, count), range(count)))

        host = Host(1, 4, None, ParallelFor(run))
        given, wanted = arrays("rows", 50, 20)
        assert libraries["rows"].run(given, [50, 20], host, threads=4) == 0
    np.testing.assert_array_equal(given[-1], wanted)


def test_calls_may_run_at_the_same_time(libraries: dict[str, Loaded]) -> None:
    calls = [arrays("rows", m, 40) for m in range(1, 9)]
    with ThreadPoolExecutor(8) as pool:
        codes = list(pool.map(lambda c: libraries["rows"](c[0], list(c[1].shape)), calls * 5))
    assert codes == [0] * 40
    for given, wanted in calls:
        np.testing.assert_array_equal(given[-1], wanted)


def test_wrong_calls_have_codes(libraries: dict[str, Loaded]) -> None:
    rows = libraries["rows"]
    given, _ = arrays("rows")
    null, start = ctypes.c_void_p(None), ctypes.c_void_p(given[0].ctypes.data)
    sizes = [ctypes.c_int64(7), ctypes.c_int64(33)]
    host, _ = in_turn(range)
    old = Host(2, 1, None, host.run)
    odd, unsaid = ctypes.c_void_p(8), Host(1, 0, None, host.run)
    assert rows["run"](start, start, *sizes, null, None) == -1
    assert rows["run"](start, start, *sizes, odd, None) == -1
    assert rows["run"](start, start, *sizes, null, ctypes.byref(old)) == -4
    assert rows["run"](start, start, *sizes, null, ctypes.byref(unsaid)) == -4
    assert rows(given, [-1, 33]) == rows(given, [7, exact_limit(built("rows").kernel) + 1]) == -3
    assert rows["workspace_bytes"](ctypes.c_int64(7), ctypes.c_int64(-1), ctypes.c_int64(1)) == -3
    assert "64 bytes" in rows.message(-1) and "ABI" in rows.message(-4) and "no code" in rows.message(77)


def test_the_workspace_grows_with_the_threads(libraries: dict[str, Loaded]) -> None:
    def size(threads: int) -> int:
        return int(
            libraries["rows"]["workspace_bytes"](ctypes.c_int64(9), ctypes.c_int64(100), ctypes.c_int64(threads))
        )

    assert size(0) == size(1) == built("rows").memory(m=9, n=100).per_thread
    assert size(6) == 6 * size(1)


def test_tensors_are_tested(libraries: dict[str, Loaded]) -> None:
    rows = libraries["rows"]
    (a, out), _ = arrays("rows")
    whole = np.zeros((14, 33), np.float32)
    shifted = np.zeros(7 * 33 * 4 + 8, np.uint8)[2:-6].view(np.uint8)
    cases: list[tuple[DLTensor, str]] = [
        (dl_tensor(out, device=2), "memory of the CPU"),
        (dl_tensor(out.ravel()), "2 dimensions"),
        (dl_tensor(out.view(np.int32)), "dtype float32"),
        (dl_tensor(np.zeros((7, 32), np.float32)), "shape [m, n]"),
        (dl_tensor(whole[::2]), "compact"),
        (dl_tensor(out, data=shifted.ctypes.data), "aligned to 4"),
        (dl_tensor(a), "overlaps"),
        (dl_tensor(whole[:7], offset=2), "aligned to 4"),
    ]
    for tensor, words in cases:
        code = rows.dl(dl_tensor(a), tensor)
        assert code < 0 and words in rows.message(code), rows.message(code)
        assert rows.message(code).startswith("rows: argument 2 (back): ")
    over = whole[3:10]
    assert rows.dl(dl_tensor(whole[:7]), dl_tensor(over)) == rows.dl(dl_tensor(a), dl_tensor(a))
    strides = dl_tensor(out)
    strides.strides = None
    assert rows.dl(dl_tensor(a), strides) == 0
    assert rows.dl(dl_tensor(a), dl_tensor(whole, offset=7 * 33 * 4, shape=strides.shape)) == 0


def test_what_fails_in_a_task_is_told(tmp_path: Path) -> None:
    data, index = te.placeholder((8,), name="data"), te.placeholder((6,), "int32", name="index")
    out = te.compute((6,), lambda i: data[index[i]], name="out")
    s = te.create_schedule(out.op)
    s[out].parallel("i")
    kernel = exported(tensorlang.build(s, [data, index, out]), tmp_path, "take")
    found, values = np.zeros(6, np.float32), np.arange(8, dtype=np.float32)
    host, _ = in_turn(range)
    assert kernel.run([values, np.array([0, 1, 7, 3, 2, 2], np.int32), found], [], host) == 0
    np.testing.assert_array_equal(found, [0, 1, 7, 3, 2, 2])
    code = kernel.run([values, np.array([0, 1, 8, 3, 2, 2], np.int32), found], [], host, 3)
    assert code > 0 and "data" in kernel.message(code)


@pytest.mark.skipif(find_library("gomp") is None, reason="needs libgomp where the loader finds it")
def test_openmp_threads(tmp_path: Path) -> None:
    kernel = exported(built("rows"), tmp_path, "rows", threads="openmp")
    given, wanted = arrays("rows", 60, 30)
    assert kernel(given, [60, 30]) == 0
    np.testing.assert_array_equal(given[-1], wanted)
    host, asked = in_turn(range)
    assert kernel.run(given, [60, 30], host, 5) == 0 and asked == [5]


def test_serial_kernels_ask_nobody(tmp_path: Path) -> None:
    kernel = exported(built("rows"), tmp_path, "rows", threads="serial")
    host, asked = in_turn(range)
    given, wanted = arrays("rows")
    assert kernel.run(given, [7, 33], host, 5) == 0 and asked == []
    np.testing.assert_array_equal(given[-1], wanted)


def test_python_stays_here(tmp_path: Path) -> None:
    a = te.placeholder((4,), name="a")
    doubled = te.extern((4,), [a], lambda ins, outs: tir.call_packed("tests.twice", ins[0], outs[0]), name="doubled")
    tensorlang.register_func("tests.twice", lambda x, y: None, override=True)
    kernel = tensorlang.build(te.create_schedule(doubled.op), [a, doubled])
    with pytest.raises(TargetError, match="calls Python"):
        kernel.export(tmp_path / "twice")


def test_the_body_of_a_parallel_loop_stands_apart(tmp_path: Path) -> None:
    """Inlined into the task that a host runs, its loops are slower than the same loops in the process."""
    made = two_regions().export(tmp_path / "two", formats=("o",))
    bodies = {name for name in made.files["o"].read_bytes().split(b"\0") if name.endswith(b".task")}
    assert bodies
    assert {name.removesuffix(b".task") for name in bodies} <= set(made.files["o"].read_bytes().split(b"\0"))
