"""The benchmark of GPUs without one: checks, turns, shares, failures, time, tables and JSON, on a made-up device."""

from __future__ import annotations

import io
import json
import math
import operator
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

import tensorlang
from benchmarks.__main__ import main
from benchmarks.gpu import command, conformance, device, jobs, lost_device, schedules, tables, workloads
from benchmarks.gpu.compiled import Resources, resources
from benchmarks.gpu.conformance import Checked
from benchmarks.gpu.contest import LEAST_ROUNDS, ROUNDS, Outcome, largest_error, measure
from benchmarks.gpu.given import Given, values
from benchmarks.gpu.operators import OPERATORS, Array
from benchmarks.gpu.peers import LIBRARIES, Library
from benchmarks.gpu.schedules import (
    BY_HAND,
    LIBRARY,
    Tile,
    by_library,
    schedulers,
    tiled_product,
)
from benchmarks.gpu.worker import Failed, Worker
from benchmarks.gpu.workloads import COPY, WORKLOADS, Workload
from tensorlang import nd
from tensorlang.errors import KernelError
from tensorlang.ir import threads
from tensorlang.target.cuda import nvrtc, runtime
from tensorlang.testing.check import check_schedule
from tests.target.cuda.fake_cupy import FakeCupy

TINY = (
    workloads.product(8, "float16"),
    workloads.product(12, "float32"),
    workloads.dense(6, "bfloat16"),
    workloads.product_gelu(9, "float32"),
    workloads.softmax(3, 19, "float32"),
    workloads.norm(5, 24, "float16"),
    workloads.transpose(7, "float32"),
    workloads.chain(33, "float32"),
    workloads.layer(2, 5, 4, "float32"),
    workloads.heads(2, 6, 8, "bfloat16"),
)
OWN_SECONDS = 0.01
COPY_SECONDS = 0.004


class FakeClock:
    """Time that passes when something says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class FakeDevice:
    """The CPU, on which our kernels take OWN_SECONDS by the fake clock, and others what they say."""

    target = "llvm"

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock

    def describe(self) -> dict[str, Any]:
        return {"name": "fake"}

    def upload(self, values: Array) -> nd.NDArray:
        return nd.array(values)

    def empty(self, shape: tuple[int, ...], dtype: str) -> nd.NDArray:
        return nd.empty(shape, dtype)

    def copy(self, amount: int) -> Callable[[], object]:
        def call() -> None:
            self.clock.now += COPY_SECONDS

        return call

    def sample(self, call: Callable[[], object]) -> float:
        before = self.clock.now
        call()
        if self.clock.now == before:
            self.clock.now += OWN_SECONDS
        return self.clock.now - before


def library(
    name: str, clock: FakeClock, seconds: float, result: Callable[[Given], Any], vendor: bool = False
) -> Library:
    """A library whose calls take so long by the fake clock, and return `result`; pytest is what is installed of it."""

    def build(given: Given) -> Mapping[str, Callable[[], Any]]:
        def call() -> Any:
            clock.now += seconds
            return result(given)

        return {"": call}

    return Library(name, "pytest", dict.fromkeys(OPERATORS, build), vendor)


def right(given: Given) -> Array:
    """What the workload asks for."""
    return given.workload.reference({name: array.numpy() for name, array in given.arrays.items()})


def broken(given: Given) -> Array:
    raise RuntimeError("a fault\nof the library")


def tiny(name: str) -> Workload:
    """The first workload of an operator."""
    return next(w for w in TINY if w.operator == name)


def only_library(workload: Workload, target: str) -> dict[str, schedules.Scheduler]:
    return {LIBRARY: by_library}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("workload", TINY, ids=lambda w: w.name)
def test_programs_and_references_agree(workload: Workload) -> None:
    clock = FakeClock()
    found = measure(workload, FakeDevice(clock), (), 1.0, clock, only_library)
    assert not found.problem
    assert found.best == LIBRARY
    assert found.errors[LIBRARY] <= workload.tolerance
    assert found.seconds[LIBRARY] == pytest.approx(OWN_SECONDS)


def test_the_table_names_each_workload_once_and_fits_memory() -> None:
    assert len({w.name for w in WORKLOADS}) == len(WORKLOADS)
    assert {w.operator for w in WORKLOADS} == set(OPERATORS)
    assert max(w.bytes for w in WORKLOADS) < 2 << 30
    assert [w.name for w in workloads.chosen("conv-*x14x*")] == ["conv-16x14x14x256-3x3-float16"]
    assert 3 <= len(workloads.chosen("", quick=True)) < len(WORKLOADS)
    known = {name for peer in LIBRARIES for name in peer.builders}
    assert known == set(OPERATORS)


def test_operations_and_bytes() -> None:
    product = workloads.product(4096, "float16")
    assert product.operations == 2 * 4096**3
    assert product.bytes == 3 * 2 * 4096**2
    assert workloads.heads(16, 4096, 128, "bfloat16").operations == 4 * 16 * 4096**2 * 128
    assert workloads.layer(16, 14, 256, "float16").operations == 2 * 16 * 14 * 14 * 256 * 256 * 9
    assert workloads.transpose(8, "float32").bytes == 2 * 4 * 64


@pytest.mark.sampled(1)
@pytest.mark.parametrize("workload", [workloads.product(32, "float16"), workloads.product_gelu(32, "float32")])
def test_products_by_hand_are_right_on_the_interpreter(workload: Workload) -> None:
    s, tensors = tiled_product(workload, "interpreter", Tile(16, 16, 8, 4, 2))
    check_schedule(s, tensors, targets=("interpreter",))
    assert BY_HAND in schedulers(workload, "interpreter")


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "workload",
    [workloads.product(64, "float16"), workloads.product_gelu(32, "bfloat16"), workloads.dense(64, "bfloat16")],
    ids=["product", "product with GELU", "dense"],
)
def test_products_on_tensor_cores_are_right_in_lockstep(workload: Workload) -> None:
    target = "cuda -arch=sm_90a"
    s, tensors = schedules.by_library(workload, target)
    assert "cuda.mma" in str(s.trace)
    arrays = workload.inputs()
    exact = workload.reference(arrays)
    names = [tensor.name for tensor in tensors]
    given = dict(zip(names, [*arrays.values(), np.zeros_like(exact, arrays["A"].dtype)], strict=True))
    threads.run(tensorlang.lower(s, tensors, target=target).kernel, given, late=True)
    assert largest_error(given[names[-1]].astype(np.float32), exact) <= workload.tolerance


def test_a_target_gets_the_schedules_that_it_can_run() -> None:
    half, single, dense = workloads.product(64, "float16"), workloads.product(64, "float32"), TINY[2]
    assert set(schedulers(half, "cuda -arch=sm_80")) == {LIBRARY, BY_HAND}
    assert set(schedulers(single, "cuda -arch=sm_90a")) == {LIBRARY, BY_HAND}
    assert set(schedulers(dense, "cuda -arch=sm_90a")) == {LIBRARY}
    assert set(schedulers(dense, "cuda -arch=sm_80")) == {LIBRARY}
    assert set(schedulers(tiny("softmax"), "llvm")) == {LIBRARY}


def test_the_share_of_the_vendors_library() -> None:
    clock = FakeClock()
    peers = (
        library("Slow vendor", clock, 0.02, right, vendor=True),
        library("Vendor", clock, 0.005, right, vendor=True),
        library("Fast", clock, 0.001, right),
    )
    found = measure(tiny("matmul"), FakeDevice(clock), peers, 60.0, clock, only_library)
    assert (found.best, found.against) == (LIBRARY, "Vendor")
    assert found.share == pytest.approx(0.5)
    assert len(found.samples["Fast"]) == ROUNDS
    assert "Fast 1 ms" in tables.others(found)
    assert "Slow vendor 20 ms" in tables.others(found)


def test_the_share_of_a_copy() -> None:
    clock = FakeClock()
    found = measure(
        tiny("softmax"), FakeDevice(clock), (library("Vendor", clock, 0.005, right, True),), 60, clock, only_library
    )
    assert found.against == COPY
    assert found.share == pytest.approx(COPY_SECONDS / OWN_SECONDS)


def test_who_is_wrong_or_fails_has_no_figure() -> None:
    clock = FakeClock()
    calls = iter(range(1000))
    peers = (
        library("Wrong", clock, 0.001, lambda given: right(given) + 1, vendor=True),
        library("Shapeless", clock, 0.001, lambda given: right(given)[:1]),
        library("Broken", clock, 0.001, broken),
        library("Late", clock, 0.001, lambda given: right(given) if next(calls) < 8 else broken(given)),
        Library("Absent", "no-such-distribution", {}),
        Library("Elsewhere", "pytest", {}),
    )
    found = measure(tiny("transpose"), FakeDevice(clock), peers, 60.0, clock, only_library)
    assert set(found.seconds) == {LIBRARY, COPY}
    assert found.absent["Wrong"].startswith("wrong result: off by")
    assert "shape" in found.absent["Shapeless"]
    assert found.absent["Broken"] == found.absent["Late"] == "RuntimeError: a fault of the library"
    assert found.absent["Absent"] == "not installed: no-such-distribution"
    assert "Elsewhere" not in found.absent
    assert len({len(taken) for taken in found.samples.values()}) == 1


def test_our_failure_is_the_problem_of_the_workload() -> None:
    def refused(workload: Workload, target: str) -> Any:
        raise ValueError("no schedule")

    def wrong(workload: Workload, target: str) -> Any:
        s, tensors = by_library(workloads.chain(33, "float32"), target)
        return s, [tensors[1], tensors[0], tensors[0], tensors[-1]]

    clock = FakeClock()
    peers = (library("Vendor", clock, 0.005, right, vendor=True),)
    own = {LIBRARY: refused, BY_HAND: wrong}
    found = measure(tiny("chain"), FakeDevice(clock), peers, 60.0, clock, lambda workload, target: own)
    assert found.problem.startswith("tensorlang: ValueError: no schedule; tensorlang, by hand: ")
    assert found.share is None
    assert "Vendor" in found.seconds


def test_no_time_means_few_rounds_and_fewer_peers() -> None:
    clock = FakeClock()
    peers = (library("Long", clock, 7.0, right), library("Late", clock, 0.1, right))
    found = measure(tiny("softmax"), FakeDevice(clock), peers, 10.0, clock, only_library)
    assert found.absent["Late"] == "no time left for it"
    assert len(found.samples[LIBRARY]) == LEAST_ROUNDS
    assert [len(turn) for turn in found.samples["Long"]] == [1] * LEAST_ROUNDS


def test_largest_error() -> None:
    exact = np.array([1.0, -4.0], np.float32)
    assert largest_error(np.array([1.0, -3.0], np.float32), exact) == 0.25
    assert largest_error(np.array([1.0, np.nan], np.float32), exact) == np.inf


def test_values_of_bits_are_bfloat16() -> None:
    assert values(np.array([0x3F80, 0xC000], np.uint16)).tolist() == [1.0, -2.0]


def test_a_worker_survives_its_work() -> None:
    with Worker() as worker:
        assert worker.run(60, math.sqrt, 9.0) == 3.0
        with pytest.raises(Failed, match="ZeroDivisionError: division by zero"):
            worker.run(60, operator.truediv, 1, 0)
        with pytest.raises(Failed, match=r"its process ended \(exit status 7\)"):
            worker.run(60, os._exit, 7)
        first = worker.run(60, os.getpid)
        with pytest.raises(Failed, match="no result within 0 s"):
            worker.run(0.1, time.sleep, 600)
        second = worker.run(60, os.getpid)
        worker.renew()
        assert len({first, second, worker.run(60, os.getpid)}) == 3


class FakeProcesses:
    """Runs no process: outcomes are prepared, by workload."""

    def __init__(self, clock: FakeClock, took: float = 30.0) -> None:
        self.clock = clock
        self.took = took
        self.renewed = 0
        self.given: list[float] = []

    def run(self, seconds: float, work: Callable[..., Any], *arguments: Any) -> Any:
        self.clock.now += self.took
        if work is jobs.describe:
            return {"name": "Fake GPU"}
        name = arguments[0]
        if work is jobs.compiled:
            if "conv" in name:
                raise Failed("no result within 5 s")
            return [Resources(name, LIBRARY, arguments[1], "kernel_0", 256, 128, 0, 0, 49152, 1.5)]
        self.given.append(arguments[1])
        if "float32" in name:
            raise Failed("its process ended (exit status -11)")
        if "bfloat16" in name:
            return Outcome(name, 1e12, 1, problem="tensorlang: KernelError: stopped", absent={LIBRARY: "KernelError"})
        seconds_of = {LIBRARY: 2e-3, "PyTorch": 1e-3, "Triton": 4e-3}
        return Outcome(name, 1e12, 1, {}, seconds_of, best=LIBRARY, against="PyTorch", share=0.5)

    def renew(self) -> None:
        self.renewed += 1


def a_run(clock: FakeClock, minutes: float = 9.0) -> tuple[command.Run, io.StringIO]:
    printed = io.StringIO()
    return command.Run(clock() + 60 * minutes, Console(file=printed, width=180), clock), printed


def test_a_run_goes_on_after_failures_and_ends_in_time() -> None:
    clock = FakeClock()
    run, printed = a_run(clock)
    processes = FakeProcesses(clock, took=50.0)
    run.measure(workloads.chosen("matmul"), processes)
    run.show()
    text = printed.getvalue()
    assert [bool(o.problem) for o in run.outcomes] == [False, True, True, False, False, True]
    assert processes.renewed == 2
    assert processes.given == [pytest.approx(s) for s in (490 / 6, 440 / 5, 390 / 4, 340 / 3, 290 / 2, 240)]
    assert "matmul-4096-float16 2 ms 500 TFLOP/s 0.50 PyTorch Triton 4 ms" in " ".join(text.split())
    assert "FAILED" in text and "its process ended (exit status -11)" in text
    assert text.rindex("on Fake GPU") > text.rindex("matmul-8192-bfloat16: ")
    assert not run.good
    data = json.loads(json.dumps(run.result()))
    assert data["device"] == data["device_afterwards"] == {"name": "Fake GPU"}
    assert {"date", "versions", "conformance", "workloads", "compiled", "good"} <= set(data)
    assert data["workloads"][0]["share"] == 0.5


def test_what_has_no_time_left_is_said() -> None:
    clock = FakeClock()
    run, _ = a_run(clock, minutes=2.0)
    run.measure(workloads.chosen("conv"), FakeProcesses(clock, took=45.0))
    assert [o.problem for o in run.outcomes] == ["", "", "no time left for it", "no time left for it"]


def test_compiled_kernels_are_shown() -> None:
    clock = FakeClock()
    run, printed = a_run(clock)
    run.compile([workloads.WORKLOADS[0], *workloads.chosen("conv-*x14")], FakeProcesses(clock))
    run.show()
    assert [(r.architecture, bool(r.problem)) for r in run.compiled] == [
        ("sm_80", False),
        ("sm_90a", False),
        ("sm_80", True),
        ("sm_90a", True),
    ]
    assert "49152" in printed.getvalue() and "FAILED no result within 5 s" in printed.getvalue()
    assert not run.good


def test_conformance_is_read_from_pytest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tests = ("@pytest.mark.a\ndef test_a(): pass", "def test_b(): assert 0", "def test_c(): pytest.skip('x')")
    program = "\n".join(["import pytest", *tests])
    (tmp_path / "test_it.py").write_text(program, encoding="utf-8")
    monkeypatch.setattr(conformance, "ROOT", tmp_path)
    found = conformance.check("it", ("test_it.py", "missing"), "", 60)
    assert (found.passed, found.skipped, len(found.failed), found.good) == (1, 1, 1, False)
    assert found.failed[0].endswith("test_b")
    assert conformance.check("it", ("test_it.py",), "a", 60).good
    nothing = conformance.check("it", ("test_it.py",), "no_such_mark", 60)
    assert nothing.passed == 0 and not nothing.good
    assert conformance.check("it", ("test_it.py",), "", 0.01).problem == "not done within 0 s"


def test_tests_that_come_too_late_are_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import time\ndef test_long(): time.sleep(3)\ndef test_late(): pass\n"
    (tmp_path / "test_it.py").write_text(program, encoding="utf-8")
    monkeypatch.setattr(conformance, "ROOT", tmp_path)
    monkeypatch.setattr(conformance, "_TEST_SHARE", 0.05)
    monkeypatch.setattr(conformance, "_MOST_PROCESSES", 1)  # several would run both at once
    found = conformance.check("it", ("test_it.py",), "", 60)
    assert (found.passed, found.skipped) == (1, 1)
    assert found.problem == "1 tests were not begun within 3 s" and not found.good


@pytest.mark.parametrize(
    ("error", "worker", "ends"),
    [
        (KernelError("k stopped: an address (700). The device context is lost, and"), True, True),
        (KernelError("k stopped: an address (700). The device context is lost, and"), False, False),
        (KernelError("k: index 9 is out of range"), True, False),
        (AssertionError("device context is lost"), True, False),
    ],
)
def test_only_a_process_that_has_lost_its_device_is_ended(
    monkeypatch: pytest.MonkeyPatch, error: Exception, worker: bool, ends: bool
) -> None:
    codes: list[int] = []
    monkeypatch.setattr("os._exit", codes.append)
    node: Any = SimpleNamespace(nodeid="a", config=SimpleNamespace(**({"workerinput": {}} if worker else {})))
    call: Any = SimpleNamespace(excinfo=SimpleNamespace(value=error))
    lost_device.pytest_exception_interact(call, node)
    assert bool(codes) == ends


@pytest.mark.parametrize("on_gpu", [True, False])
def test_the_tests_that_suit_the_machine_are_run(on_gpu: bool) -> None:
    asked: list[Any] = []

    def tests(name: str, paths: Any, marks: str, seconds: float) -> Checked:
        asked.append((marks, paths, seconds))
        assert all((conformance.ROOT / path).exists() for path in paths)
        return Checked(name, 90, 2, ("a.b",), 12.0)

    run, printed = a_run(FakeClock())
    run.conformance(tests, on_gpu)
    assert asked[0][0] == ("cuda_device" if on_gpu else "")
    assert asked[0][2] == pytest.approx(0.4 * 540)
    assert "a.b" in printed.getvalue()
    assert not run.good


def test_without_a_gpu_the_command_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(command, "why_no_device", lambda: "no CUDA driver on this machine")
    made = CliRunner().invoke(main, ["gpu"])
    assert made.exit_code == command.NO_GPU
    assert "No kernel can be measured here: no CUDA driver on this machine" in made.output
    assert "--compile-only" in made.output

    monkeypatch.setattr(command, "check", lambda name, paths, marks, seconds: Checked(name, passed=3))
    monkeypatch.setattr(nvrtc, "is_available", lambda: False)
    out = tmp_path / "result.json"
    made = CliRunner().invoke(main, ["gpu", "--check", "--json", str(out)])
    assert made.exit_code == command.NO_GPU
    assert json.loads(out.read_text(encoding="utf-8"))["conformance"][0]["passed"] == 3
    assert CliRunner().invoke(main, ["gpu", "--compile-only"]).exit_code == command.NO_GPU
    wrong = CliRunner().invoke(main, ["gpu", "--only", "nothing"])
    assert "no workload is called like 'nothing'" in wrong.output


@pytest.mark.skipif(not nvrtc.is_available(), reason="no NVRTC: pip install nvidia-cuda-nvrtc")
def test_kernels_are_compiled_without_a_gpu(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    made = CliRunner().invoke(main, ["gpu", "--compile-only", "--only", "chain", "--json", str(out)])
    assert made.exit_code == 0, made.output
    rows = json.loads(out.read_text(encoding="utf-8"))["compiled"]
    assert {row["architecture"] for row in rows} == {"sm_80", "sm_90a"}
    assert all(row["registers"] > 0 and row["spills"] == 0 for row in rows)


@pytest.mark.skipif(not nvrtc.is_available(), reason="no NVRTC: pip install nvidia-cuda-nvrtc")
def test_the_product_by_hand_spills_nothing() -> None:
    rows = [r for r in resources(workloads.product(4096, "float32"), "sm_80") if r.schedule == BY_HAND]
    assert [(r.threads, r.spills, r.stack) for r in rows] == [(256, 0, 0)]
    assert 0 < rows[0].shared <= 164 << 10
    assert resources(workloads.product(4096, "float32"), "sm_1")[0].problem.startswith("TargetError")


def test_a_sample_is_cold_and_between_two_events(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = FakeCupy()
    monkeypatch.setattr(runtime, "cupy", lambda: cupy)
    monkeypatch.setattr(device, "_LEAST_FLUSHED", 1 << 12)

    def call() -> None:
        cupy.log.append(("call",))
        cupy.clock += 2

    assert device.CudaDevice().sample(call) == pytest.approx(2e-3)
    assert [entry[0] for entry in cupy.log] == ["memset", "record", "call", "record", "wait for event"]
    assert cupy.log[0][2] == 1 << 12
