"""CUDA graphs and device time: what is recorded, replayed and measured; on a fake CuPy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tensorlang.errors import ArgumentError, KernelError
from tests.target.cuda.device_programs import double, executable, one_launch, two_launches
from tests.target.cuda.fake_cupy import FakeArray, FakeCupy


@pytest.fixture
def arrays(cupy: FakeCupy) -> tuple[FakeArray, FakeArray]:
    cupy.kernels |= {"double": double, "double_again": double}
    return cupy.array(np.arange(4, dtype=np.float32)), cupy.array(np.zeros(4, np.float32))


def test_a_graph_replays_on_what_the_arrays_hold_then(cupy: FakeCupy, arrays: tuple[FakeArray, FakeArray]) -> None:
    a, b = arrays
    graph = executable(two_launches()).graph(a, b)
    assert not b.memory.any()
    a.memory[...] = 3
    graph.launch()
    assert np.array_equal(b.memory, np.full(4, 12, np.float32))
    order = [entry[0] for entry in cupy.log]
    assert order == ["load", "begin capture", "empty", "end capture", "graph", "launch", "launch"]
    captured, replayed = cupy.log[1], cupy.log[4]
    assert captured[1] != 0
    assert replayed == ("graph", 2, 0)


def test_a_graph_keeps_its_scratch_memory(cupy: FakeCupy, arrays: tuple[FakeArray, FakeArray]) -> None:
    graph = executable(two_launches()).graph(*arrays)
    assert [array.shape for array in graph._scratch] == [(4,)]


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        (lambda cupy: cupy.cuda.Stream.from_external(SimpleNamespace(__cuda_stream__=lambda: (0, 5))), 5),
        (lambda cupy: SimpleNamespace(__cuda_stream__=lambda: (0, 6)), 6),
        (lambda cupy: SimpleNamespace(cuda_stream=7), 7),
    ],
)
def test_a_graph_runs_on_the_stream_it_is_given(
    cupy: FakeCupy, arrays: tuple[FakeArray, FakeArray], given: Any, pointer: int
) -> None:
    graph = executable(one_launch()).graph(*arrays)
    graph.launch(given(cupy))
    assert ("graph", 1, pointer) in cupy.log


def test_a_graph_takes_device_memory_and_a_stream(arrays: tuple[FakeArray, FakeArray]) -> None:
    f = executable(one_launch())
    with pytest.raises(ArgumentError, match="twice: a graph needs all arrays in device memory, got one in CPU memory"):
        f.graph(arrays[0], np.zeros(4, np.float32))
    with pytest.raises(ArgumentError, match=r"expected a CUDA stream, .* got 5"):
        f.graph(*arrays).launch(5)


def test_a_graph_reports_faults(arrays: tuple[FakeArray, FakeArray]) -> None:
    a, b = arrays
    graph = executable(one_launch(), fault=True).graph(a, b)
    graph.launch()
    a.memory[0] = np.nan
    for _ in range(2):
        with pytest.raises(KernelError, match="out of range"):
            graph.launch()
    a.memory[0] = 0
    graph.launch()


def test_an_error_while_recording_ends_the_recording(cupy: FakeCupy, arrays: tuple[FakeArray, FakeArray]) -> None:
    cupy.fail = 700
    with pytest.raises(KernelError, match="context is lost"):
        executable(one_launch()).graph(*arrays)
    assert cupy.log[-1][0] == "end capture"


def test_device_time_is_taken_between_events(cupy: FakeCupy, arrays: tuple[FakeArray, FakeArray]) -> None:
    timing = executable(two_launches()).time_evaluator(number=130, repeat=2)(*arrays)
    # The fake kernels take 1 ms each.
    assert timing.results == pytest.approx((2e-3, 2e-3))
    assert [entry[1] for entry in cupy.log if entry[0] == "graph"][1:4] == [128, 128, 4]


def test_the_cache_is_emptied_outside_of_the_time(cupy: FakeCupy, arrays: tuple[FakeArray, FakeArray]) -> None:
    timing = executable(one_launch()).time_evaluator(number=3, flush_l2=True)(*arrays)
    assert timing.results == pytest.approx((1e-3,))
    assert cupy.log.count(("memset", 0, 2000)) == 3


def test_numpy_arrays_are_timed_by_the_host(cupy: FakeCupy, arrays: tuple[FakeArray, FakeArray]) -> None:
    given = [np.ones(4, np.float32) for _ in range(2)]
    timing = executable(one_launch()).time_evaluator(number=2)(*given)
    assert timing.mean > 0
    assert "record" not in {entry[0] for entry in cupy.log}
