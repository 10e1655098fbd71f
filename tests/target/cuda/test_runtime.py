"""Which devices there are, what code runs on them and what a block may use; and why nothing runs where nothing can."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tensorlang.errors import MissingDependency, TargetError
from tensorlang.target.cuda import runtime
from tensorlang.target.cuda.memory import MEMORY
from tensorlang.target.detect import parse
from tensorlang.target.gpus import CUDA
from tests.target.cuda.device_programs import executable, one_launch
from tests.target.cuda.fake_cupy import ATTRIBUTES, FakeCupy, Reported


@pytest.fixture
def bare() -> Iterator[None]:
    """Nothing known of this machine yet, before and after."""
    runtime.cupy.cache_clear()
    runtime.driver.cache_clear()
    yield
    runtime.cupy.cache_clear()
    runtime.driver.cache_clear()


def without_driver(name: str | None, *options: Any) -> Any:
    raise OSError(name)


@pytest.mark.usefixtures("bare")
def test_without_a_driver_a_call_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", without_driver)
    a = np.ones(4, np.float32)
    with pytest.raises(TargetError, match=r"no CUDA driver .* libcuda.so.1 is not found.*source\('cuda'\)"):
        executable(one_launch())(a, a.copy())
    assert runtime.device_count() == MEMORY.count() == 0


@pytest.mark.usefixtures("bare")
def test_without_cupy_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "driver", object)
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(MissingDependency, match=r"pip install 'tensorlang\[cuda\]'"):
        runtime.cupy()
    assert runtime.device_count() == 0


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("status", "why"), [(35, "the driver is older than the CUDA of CuPy"), (100, "the driver finds none")]
)
def test_without_a_device_the_reason_is_told(monkeypatch: pytest.MonkeyPatch, status: int, why: str) -> None:
    fake = FakeCupy()

    def refuse() -> int:
        raise Reported(status)

    fake.cuda.runtime.getDeviceCount = refuse
    monkeypatch.setattr(runtime, "driver", object)
    monkeypatch.setitem(sys.modules, "cupy", fake)
    with pytest.raises(TargetError, match=f"no CUDA device to run on: {why}"):
        runtime.cupy()
    fake.cuda.runtime.getDeviceCount = lambda: 0
    with pytest.raises(TargetError, match="none is visible; see CUDA_VISIBLE_DEVICES"):
        runtime.cupy()


@pytest.mark.parametrize(
    ("code", "device", "runs"),
    [
        ("sm_80", "sm_80", True),
        ("sm_80", "sm_86", True),
        ("sm_86", "sm_80", False),
        ("sm_80", "sm_90a", False),
        ("sm_90", "sm_90a", True),
        ("sm_90a", "sm_90a", True),
        ("sm_90a", "sm_100", False),
        ("sm_100", "sm_103", True),
        ("sm_103", "sm_100", False),
        ("sm_100a", "sm_103", False),
        ("sm_120", "sm_121", True),
    ],
)
def test_code_runs_on_its_generation_and_not_on_older_devices(code: str, device: str, runs: bool) -> None:
    assert runtime.runs_on(code, device) is runs


@pytest.mark.usefixtures("two_devices")
def test_the_architecture_is_the_device_s_unless_the_target_names_one() -> None:
    assert [runtime.architecture_of(n) for n in range(2)] == ["sm_90a", "sm_80"]
    assert runtime.default_architecture(parse("cuda")) == "sm_90a"
    assert runtime.default_architecture(parse("cuda -arch=sm_86")) == "sm_86"


def test_a_block_may_use_what_the_device_says(cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ATTRIBUTES, "MaxSharedMemoryPerBlockOptin", 200000)
    limits = runtime.device_limits(parse("cuda"))
    assert (limits.shared_bytes, limits.max_threads, limits.threads_per_core) == (200000, 1024, 2048)
    assert runtime.device_limits(parse("cuda -arch=sm_90a")) == CUDA["sm_90a"]


def test_building_for_an_architecture_asks_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "cupy", lambda: pytest.fail("CUDA would be initialised"))
    target = parse("cuda -arch=sm_86")
    assert runtime.device_limits(target) == CUDA["sm_86"]
    assert runtime.default_architecture(target) == "sm_86"


def test_a_target_may_lower_limits_and_not_raise_them(cupy: FakeCupy) -> None:
    lower = runtime.device_limits(parse("cuda -max_num_threads=256 -max_shared_memory_per_block=1000"))
    assert (lower.max_threads, lower.shared_bytes) == (256, 1000)
    higher = runtime.device_limits(parse("cuda -arch=sm_80 -max_num_threads=4096"))
    assert higher.max_threads == 1024


def test_without_a_device_the_table_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "device_count", lambda: 0)
    assert runtime.device_limits(parse("cuda -arch=sm_86")) == CUDA["sm_86"]
    assert runtime.device_limits(replace(parse("cuda"), gpu=None)) == CUDA["sm_80"]
    assert runtime.default_architecture(parse("cuda")) == "sm_80"


def test_arrays_on_devices(two_devices: FakeCupy) -> None:
    assert MEMORY.count() == 2
    there = MEMORY.empty((2, 3), np.dtype(ml_dtypes.bfloat16), 1)
    assert (there.dtype, there.shape, there.device.id) == (np.uint16, (2, 3), 1)
    values = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    MEMORY.copy_in(there, values)
    assert np.array_equal(MEMORY.copy_out(there).view(ml_dtypes.bfloat16), values)
    scalar = MEMORY.empty((), np.dtype(np.float32), 0)
    MEMORY.copy_in(scalar, np.array(3, np.float32))
    assert MEMORY.copy_out(scalar) == 3
    MEMORY.synchronize(1)
    assert two_devices.log[-1] == ("synchronize device", 1)
    two_devices.full = True
    with pytest.raises(MemoryError, match="an array: the device has no memory"):
        MEMORY.empty((4,), np.dtype(np.float32), 0)
