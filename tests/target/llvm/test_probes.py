"""Probes of machines: what is counted is what the compiled code does, for CPUs other than this one too."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tensorlang.runtime.arrays import address
from tensorlang.target import parse
from tensorlang.target.detect import machine_options
from tensorlang.target.llvm import engine
from tensorlang.target.llvm.host import Machine
from tensorlang.target.llvm.probes import compiled, source

ARM = "llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-v1"


@pytest.mark.parametrize(
    ("target", "name", "instruction"),
    [
        ("llvm -mcpu=haswell", "fma float32x8", r"vfmadd\w+ps\s.*%ymm"),
        ("llvm -mcpu=haswell", "fma float64x2", r"vfmadd\w+pd\s.*%xmm"),
        ("llvm -mcpu=sapphirerapids", "fma float32x16", r"vfmadd\w+ps\s.*%zmm"),
        ("llvm -mcpu=sapphirerapids", "dot int8x64", r"vpdpbusd\s.*%zmm"),
        ("llvm -mcpu=sapphirerapids", "dot bfloat16x32", r"vdpbf16ps\s.*%zmm"),
        ("llvm -mcpu=znver4", "load float32x16", r"vp?xor\w*\s+-?\d*\(.*%zmm"),
        ("llvm -mcpu=sapphirerapids", "load float32x16", r"vp?xor\w*\s+-?\d*\(.*%zmm"),
        (ARM, "fma float32x4", r"fmla\s+v\d+\.4s"),
        (ARM, "dot int8x16", r"sdot\s+v\d+\.4s"),
        (ARM, "dot bfloat16x8", r"bfdot\s+v\d+\.4s"),
    ],
)
def test_no_instruction_that_is_counted_is_removed(target: str, name: str, instruction: str) -> None:
    parsed = parse(target)
    probes, text = source(parsed)
    place = [probe.name for probe in probes].index(name)
    assembly = engine.assembly(text, Machine(*machine_options(parsed)))
    function = re.split(r"^probe\d+:$", assembly, flags=re.MULTILINE)[place + 1]
    found = len(re.findall(instruction, function))
    assert found == probes[place].operations  # a round stays one round: streams are read one behind the other


def test_the_clock_waits_for_every_addition() -> None:
    probes, text = source(parse("llvm -mcpu=haswell"))
    machine = Machine(*machine_options(parse("llvm -mcpu=haswell")))
    function = re.split(r"^probe\d+:$", engine.assembly(text, machine), flags=re.MULTILINE)[1]
    assert probes[0].name == "clock"
    assert len(re.findall(r"^\s+(addq|xorq|leaq)\s", function, re.MULTILINE)) >= probes[0].operations


def test_every_probe_runs_here() -> None:
    probes, memory = compiled(parse("llvm")), np.zeros(1 << 16, np.uint8)
    for name, run in probes.runs.items():
        run(address(memory), 2, 2)
        assert probes.operations[name] > 0
