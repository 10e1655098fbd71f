"""Target texts: what they mean here and elsewhere, and how wrong ones are refused."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tensorlang import config
from tensorlang.errors import RecordError, TargetError
from tensorlang.runtime.threads import available_cores
from tensorlang.target import Target, parse
from tensorlang.target.backend import backend
from tensorlang.target.cpus import CPUS
from tensorlang.target.detect import cache_sizes, host_cpu, machine_options, runs_here
from tensorlang.target.kinds import KINDS
from tensorlang.target.spec import GpuLimits
from tensorlang.target.spec import Target as Spec


def test_no_text_is_this_machine() -> None:
    target = parse(None)
    assert target == parse("llvm") == Target("llvm") == parse(target)
    assert (target.kind, target.triple, target.cpu) == ("llvm", "", host_cpu().name)
    assert runs_here(target)


@pytest.mark.parametrize(
    ("text", "vector_bytes", "registers", "lanes"),
    [
        ("llvm -mcpu=haswell", 32, 16, 8),
        ("llvm -mcpu=skylake-avx512", 64, 32, 16),
        ("llvm -mcpu=x86-64-v4", 64, 32, 16),
        ("llvm -mcpu=sandybridge", 16, 16, 4),
        ("llvm -mcpu=neoverse-n1", 16, 32, 4),
        ("llvm -mtriple=aarch64-linux-gnu", 16, 32, 4),
        ("llvm -mtriple=x86_64-linux-gnu", 16, 16, 4),
        ("llvm -mcpu=haswell -mattr=+avx512f", 64, 32, 16),
        ("llvm -mcpu=skylake-avx512 -mattr=-avx512f", 32, 16, 8),
    ],
)
def test_named_cpus(text: str, vector_bytes: int, registers: int, lanes: int) -> None:
    target = parse(text)
    assert (target.vector_bytes, target.vector_registers) == (vector_bytes, registers)
    assert target.lanes(32) == lanes
    assert parse(str(target)) == target


def test_every_named_cpu_round_trips_through_text_and_json() -> None:
    for name in CPUS:
        target = parse(f"llvm -mcpu={name}") if name != "generic" else parse("llvm -mtriple=aarch64-linux-gnu")
        assert parse(str(target)) == target
        assert Spec.from_json(target.to_json()) == target


def test_a_foreign_architecture_does_not_run_here() -> None:
    foreign = {"x86_64": "llvm -mcpu=neoverse-n1", "aarch64": "llvm -mcpu=haswell"}[host_cpu().architecture]
    target = parse(foreign)
    assert target.triple
    assert not runs_here(target)


def test_a_cpu_with_features_that_this_one_lacks_does_not_run_here() -> None:
    missing = next(f for f in ("amx-fp16", "avx512fp16", "sve2") if f not in host_cpu().features)
    assert not runs_here(parse(f"llvm -mattr=+{missing}"))
    assert runs_here(parse(f"llvm -mattr=-{missing}"))


def test_features_reach_llvm() -> None:
    triple, cpu, features = machine_options(parse("llvm -mattr=-fma"))
    assert (triple, cpu) == ("", host_cpu().name)
    assert features.endswith(",-fma")
    assert machine_options(parse("llvm -mtriple=aarch64-linux-gnu -mattr=+sve")) == (
        "aarch64-linux-gnu",
        "generic",
        "+sve",
    )


def test_cores_come_from_the_text_the_setting_or_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if hasattr(os, "sched_getaffinity"):
        assert available_cores() == len(os.sched_getaffinity(0))
    assert parse("llvm").cores == available_cores()
    with config.override(num_threads=5):
        assert parse("llvm").cores == 5
        assert parse("llvm -num-cores=3").cores == 3


def test_caches_grow_outwards() -> None:
    sizes = cache_sizes()
    assert 1 <= len(sizes) <= 4
    assert list(sizes) == sorted(sizes)
    assert sizes[0] >= 4096


def test_the_interpreter_takes_no_cpu() -> None:
    assert parse("interpreter").gpu == GpuLimits()
    with pytest.raises(TargetError, match="unknown target option '-mcpu=haswell'; target interpreter takes -num"):
        parse("interpreter -mcpu=haswell")


def test_options_that_choose_schedules_of_tvm_change_nothing() -> None:
    assert parse("llvm -mcpu=haswell -libs=cblas -device=arm_cpu") == parse("llvm -mcpu=haswell")
    assert parse("cuda -arch=sm_80 -model=a100 -libs=cudnn") == parse("cuda -arch=sm_80")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lvm", r"unknown target kind 'lvm'; known: llvm, interpreter, cuda, opencl; did you mean 'llvm'\?"),
        ("", "an empty target"),
        ("llvm '-mcpu=x", r"words as of a command line, got .*: No closing quotation"),
        ("llvm -mcpu=haswel", "unknown CPU -mcpu=haswel; did you mean haswell"),
        ("llvm -mcpu", "-mcpu needs a value"),
        ("llvm -march=x", "unknown target option '-march=x'.*-mcpu"),
        ("llvm -mtriple=mips64-linux-gnu", "generates code for x86_64"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=haswell", "haswell is an x86_64 CPU"),
        ("llvm -mattr=avx2", r"expected \+feature or -feature"),
        ("llvm -mcpu=" + host_cpu().name + " -mattr=+no-such-thing", "no feature 'no-such-thing'"),
        ("llvm -num-cores=0", "whole number of at least 1"),
    ],
)
def test_wrong_texts_are_refused(text: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        parse(text)


def test_wrong_records_are_refused() -> None:
    with pytest.raises(RecordError, match=r"speed.*its fields are"):
        Spec.from_json({"kind": "llvm", "speed": 3})
    with pytest.raises(RecordError, match="kind is missing"):
        Spec.from_json({"cpu": "haswell"})
    numbers: list[dict[str, Any]] = [{"cpu": 7}, {"cores": "2"}, {"cores": True}, {"cores": -1}, {"caches": [1, "2"]}]
    limits: list[dict[str, Any]] = [{"gpu": {"warp": 1.5}}, {"gpu": {"block": [1, 2]}}, {"gpu": {"bulk_copies": 1}}]
    others: list[dict[str, Any]] = [{"gpu": 3}, {"gpu": {"speed": 3}}, {"caches": 1}, {"features": None}]
    for wrong in (*others, *numbers, *limits):
        with pytest.raises(RecordError, match="malformed target record"):
            Spec.from_json({"kind": "llvm", **wrong})


def test_targets_with_a_gpu_round_trip_through_json() -> None:
    target = parse("interpreter")
    assert Spec.from_json(target.to_json()) == target


def test_every_kind_has_its_backend() -> None:
    for kind in KINDS:
        assert backend(kind).kind == kind
    with pytest.raises(TargetError, match="unknown target kind"):
        backend("vulkan")


def test_targets_tell_what_a_block_may_use() -> None:
    gpu, cpu = parse("cuda -arch=sm_80 -max_num_threads=256"), parse("llvm")
    assert gpu.keys == ("cuda", "gpu") and cpu.keys == ("cpu",)
    assert (gpu.max_num_threads, gpu.thread_warp_size, cpu.max_num_threads, cpu.thread_warp_size) == (256, 32, 1, 1)
    assert gpu.max_shared_memory_per_block > 48 << 10 and cpu.max_shared_memory_per_block == 0


def test_the_target_in_use() -> None:
    assert Spec.current() is None
    with pytest.raises(TargetError, match="no target is in use here; write `with"):
        Spec.current(allow_none=False)
    with parse("opencl") as used:
        assert Spec.current(allow_none=False) is used
    assert Spec.current() is None


def test_blocks_of_the_interpreter_are_as_large_as_asked() -> None:
    usual, large = parse("interpreter"), parse("interpreter -max_num_threads=2048 -max_shared_memory_per_block=232448")
    assert (usual.max_num_threads, usual.max_shared_memory_per_block) == (1024, 49152)
    assert (large.max_num_threads, large.max_shared_memory_per_block) == (2048, 232448)
