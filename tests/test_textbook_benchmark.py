"""The benchmark of profiles, on tiny kernels and a machine whose limits are known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import textbook
from benchmarks.__main__ import main
from tensorlang.profiling import machine
from tensorlang.target.detect import host_cpu
from tensorlang.target.rates import Rates

pytestmark = pytest.mark.skipif(host_cpu().architecture != "x86_64", reason="the clock is that of x86-64")


def test_what_a_profile_names_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {"fma float32x8": 1e-4, "L1": 1e4, "L2": 1e4, "L3": 1e4, "memory": 1e4}
    monkeypatch.setattr(machine, "undisturbed_rates", lambda threads, kept: Rates(threads, rates))
    small = tuple(replace(kernel, size=64) for kernel in textbook.KERNELS)
    monkeypatch.setattr(textbook, "KERNELS", small)
    monkeypatch.setattr(textbook, "_LANES", 16)
    out = tmp_path / "result.json"
    done = CliRunner().invoke(main, ["textbook", "--rounds", "1", "--json", str(out)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    told = {one["name"]: one for one in json.loads(out.read_text())["kernels"]}
    assert told.keys() == {kernel.name for kernel in small} and len(told) >= 10
    assert told["product of matrices"]["binds"] == "compute" != told["copy, from memory"]["binds"]
    assert "bound by compute, not L1" in done.output and f" of {len(small)} are named rightly" in done.output
    assert all(one["parts"] > 0 and one["overhead"] > -1 for one in told.values())
