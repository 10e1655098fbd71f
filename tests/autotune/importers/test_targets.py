"""Targets of TVM's logs."""

from __future__ import annotations

import pytest

from tensorlang.autotune.importers.targets import target_of
from tensorlang.errors import RecordError
from tensorlang.target import parse
from tensorlang.target.spec import GpuLimits


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ("llvm -keys=cpu -mcpu=skylake-avx512 -num-cores=2", "llvm -mcpu=skylake-avx512 -num-cores=2"),
        ("llvm -mcpu=core-avx2", "llvm -mcpu=haswell -num-cores=1"),
        ("llvm -keys=cpu -link-params=0", "llvm -mcpu=x86-64 -num-cores=1"),
        (
            "llvm -device=arm_cpu -mtriple=aarch64-linux-gnu -mattr=+neon",
            "llvm -mtriple=aarch64-linux-gnu -mattr=+neon -num-cores=1",
        ),
        ("llvm -target=aarch64-linux-gnu", "llvm -mtriple=aarch64-linux-gnu -num-cores=1"),
    ],
)
def test_a_cpu_is_the_one_that_our_text_names(text: str, ours: str) -> None:
    assert target_of(text) == parse(ours)


def test_cores_of_the_text_come_before_those_of_the_log() -> None:
    assert target_of("llvm -mcpu=haswell", 18).cores == 18
    assert target_of("llvm -mcpu=haswell -num-cores=4", 18).cores == 4


def test_machines_that_nobody_compiles_for_keep_their_names() -> None:
    gpu = target_of("cuda -arch=sm_86 -max_num_threads=512 -max_shared_memory_per_block=1024 -thread_warp_size=64")
    assert (gpu.kind, gpu.cpu, gpu.gpu) == ("cuda", "sm_86", GpuLimits(512, 1024, 64))
    strange = target_of("llvm -mcpu=quantum-9000 -num-cores=3")
    assert (strange.kind, strange.cpu, strange.cores) == ("llvm", "quantum-9000", 3)
    assert target_of("hexagon -mtriple=hexagon").kind == "hexagon"


def test_a_text_that_is_none_is_refused() -> None:
    with pytest.raises(RecordError, match="no text that names one"):
        target_of('llvm -mattr="+avx')
