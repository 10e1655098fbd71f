"""Tuning networks: under one budget, taken only where faster, kept when stopped, gone on with later."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import tensorlang
from tensorlang import config
from tensorlang.autotune import LogWriter, Phase, TuningRecord, default_store, read_log
from tensorlang.cli.network_display import NetworkScreen, describe, time_left
from tensorlang.errors import ArgumentError, DefinitionError, TargetError
from tensorlang.networks import Model, from_onnx, tuning
from tensorlang.networks.compiling import compile_network
from tensorlang.networks.tuning import NetworkProgress, TunedNetwork
from tests.cli.test_cli import run
from tests.networks.models import drawn, model, node, onnx, reference

INPUT = drawn(12, 64)
TARGET = "llvm -num-cores=1"


def chain() -> Any:
    """Two products of one program with what follows them, one of another, and a softmax."""
    weights = {"w0": drawn(64, 64, seed=1) / 8, "w1": drawn(64, 64, seed=2) / 8, "w2": drawn(64, 20, seed=3) / 8}
    nodes = [
        node("MatMul", "x w0", "m0"),
        node("Relu", "m0", "h0"),
        node("MatMul", "h0 w1", "m1"),
        node("Relu", "m1", "h1"),
        node("MatMul", "h1 w2", "m2"),
        node("Softmax", "m2", "y", axis=-1),
    ]
    return model(nodes, {"x": (12, 64)}, "y", weights)


@pytest.fixture
def compiled(tmp_path: Path) -> Any:
    """A compiled network, with a store of its own."""
    with config.override(store=tmp_path / "store", cache_dir=tmp_path / "cache"):
        yield compile_network(from_onnx(chain()), TARGET)


@dataclass(frozen=True)
class Tuned:
    """A network that was tuned by a few trials of each kernel, what was told, the records, and the network again."""

    network: Model
    result: TunedNetwork
    told: list[NetworkProgress]
    records: Sequence[TuningRecord]
    again: Model


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """Two trials of each kernel: the library's schedule, and another one."""
    with config.override(store=tmp_path_factory.mktemp("tuned") / "store"):
        network, told = compile_network(from_onnx(chain()), TARGET), list[NetworkProgress]()
        result = network.tune(trials=6, progress=told.append)
        again = compile_network(from_onnx(chain()), TARGET)
        return Tuned(network, result, told, read_log(default_store()).records, again)


@pytest.fixture
def trials(tuned: Tuned, tmp_path: Path) -> Path:
    """A log in which the last record of each program is the fastest."""
    last = {record.workload.key: record for record in tuned.records if record.ok}
    with LogWriter(tmp_path / "chosen.jsonl") as log:
        for record in last.values():
            log.append(replace(record, seconds=(1e-9,)))
    return tmp_path / "chosen.jsonl"


def equal(network: Model) -> None:
    np.testing.assert_allclose(network(INPUT), reference(chain(), INPUT)[0], rtol=1e-4, atol=1e-6)


def test_each_program_is_tuned_once_and_its_records_are_in_the_store(tuned: Tuned) -> None:
    result, told, records = tuned.result, tuned.told, tuned.records
    assert result.trials == len(records) == len(told) == 6
    assert Counter(k.calls for k in result.kernels) == {2: 1, 1: 2} and not result.left
    assert Counter(r.workload.name for r in records) == {"network MatMul": 4, "network Softmax": 2}
    assert [(p.begun, p.kernels, p.trials) for p in told] == [(1 + n // 2, 3, n + 1) for n in range(6)]
    assert all(0 < p.expected <= p.before for p in told)
    assert {p.trial.record.trace_key for p in told} == {r.trace_key for r in records}
    assert 0 < result.after <= result.before * 1.001
    origins = [step.run.origin.schedule.origin for step in tuned.again.steps]  # type: ignore[union-attr]
    assert all("the record of " in origin for origin in origins)
    equal(tuned.network)
    equal(tuned.again)


@pytest.mark.parametrize("faster", [True, False])
def test_a_tuned_kernel_is_taken_where_it_is_faster(
    compiled: Model, trials: Path, faster: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = [step.run for step in compiled.steps]

    def raced(network: Model, rivals: Any, *_: Any) -> tuple[list[float], list[float]]:
        assert rivals and set(rivals) <= set(own)
        return [1.0] * len(own), [0.5 if faster and step.run in rivals else 1.1 for step in network.steps]

    monkeypatch.setattr(tuning, "_raced", raced)
    result = compiled.tune(trials=0, log=trials)
    assert result.trials == 0 and result.before == len(own)
    changed = [step.run is not before for step, before in zip(compiled.steps, own, strict=True)]
    assert any(changed) is faster and result.after == result.before - sum(changed) / 2
    assert sum(k.calls for k in result.kernels if k.taken) == sum(changed)
    equal(compiled)


def test_kernels_and_rivals_run_by_turns_in_the_network(compiled: Model, trials: Path, tmp_path: Path) -> None:
    result = compiled.tune(INPUT, trials=0, log=trials)
    assert [k.after < k.before for k in result.kernels if k.taken] == [True] * sum(k.taken for k in result.kernels)
    assert all(k.before > 0 and k.after > 0 for k in result.kernels)
    equal(compiled)
    made = compiled.export(tmp_path / "chain", formats=("o", "h"))
    assert made.files["o"].stat().st_size > 0


def test_what_has_no_record_comes_first_when_it_goes_on(compiled: Model, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"

    def tuned(count: int) -> list[str]:
        before = len(read_log(log).records) if log.exists() else 0
        compiled.tune(trials=count, log=log)
        return [r.workload.key for r in read_log(log).records[before:]]

    (first,) = tuned(1)
    second = tuned(2)
    assert len({first, *second}) == 3


def test_what_is_stopped_is_kept(compiled: Model, tmp_path: Path) -> None:
    def stop(progress: NetworkProgress) -> None:
        if progress.trials == 2:
            raise KeyboardInterrupt

    with pytest.raises(tuning.Interrupted, match="same log") as stopped:
        compiled.tune(trials=9, log=tmp_path / "log.jsonl", progress=stop)
    assert stopped.value.result.trials == len(read_log(tmp_path / "log.jsonl").records) == 2
    assert [k.trials for k in stopped.value.result.kernels] == [2]
    equal(compiled)


def test_a_model_that_was_started_from_the_cache(tmp_path: Path, trials: Path) -> None:
    onnx.save(chain(), tmp_path / "chain.onnx")
    with config.override(store=tmp_path / "store", cache_dir=tmp_path / "cache"):
        tensorlang.compile(tmp_path / "chain.onnx", TARGET)
        started = tensorlang.compile(tmp_path / "chain.onnx", TARGET)
        assert started.again is not None
        assert started.tune(trials=0, log=trials).kernels
        equal(started)
        started.export(tmp_path / "out" / "chain", formats=("so",))
        loaded = tensorlang.load(tmp_path / "out" / "chain.so")
        equal(loaded)
        with pytest.raises(TargetError, match="not built here"):
            loaded.tune(trials=1)


def test_a_budget_is_needed(compiled: Model) -> None:
    with pytest.raises(ArgumentError, match="seconds, or trials"):
        compiled.tune()
    with pytest.raises(DefinitionError, match="seconds is a time"):
        compiled.tune(seconds=-1)


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, log = str(tmp_path / "chain.onnx"), tmp_path / "other.jsonl"
    onnx.save(chain(), path)
    with config.override(store=tmp_path / "store", cache_dir=tmp_path / "cache"):
        assert run(["tune", path, "--trials", "1", "--threads", "1", "--log", str(log), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["trials"] == len(read_log(log).records) == len(told["kernels"]) == 1
        made = ["compile", path, "-o", f"{tmp_path / 'out'}/", "--formats", "h", "--tune", "0.01"]
        assert run([*made, "--target", TARGET]) == 0
        out, err = capsys.readouterr()
        assert "1 trial in " in out and "kept in the default store" in out
        assert "network " in err and "timing: " in err and len(read_log(default_store()).records) == 1
    assert run(["tune", path]) == 2
    assert run(["tune", path, "--trials", "1", "--dtype", "float32", "--flush"]) == 2
    assert "got --dtype, --flush" in capsys.readouterr().err


def shown(screen: Any) -> Sequence[str]:
    console = Console(width=60, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(screen)
    return capture.get().splitlines()


def test_what_the_screen_shows(tuned: Tuned) -> None:
    progress = replace(tuned.told[0], before=2e-3, expected=1.5e-3, elapsed=10.0, trials=5, failures=Counter(crash=2))
    assert time_left(progress, 20, None) == 30 and time_left(progress, 20, 12.0) == 2
    cells = dict(describe(progress, 20, None))
    assert (cells["network"], cells["trials"], cells["failures"]) == ("2 ms, 1.5 ms expected", "5/20", "2 crash")
    now = [0.0]
    screen = NetworkScreen(20, None, clock=lambda: now[0])
    assert shown(screen) == ["     now  reading: log, inputs, reference outputs  0:00"]
    screen.enter(Phase.TIMING)
    screen.add(progress)
    now[0] = 5.0
    network, kernels, bar, failed, last = shown(screen)
    assert network.split(None, 1) == ["network", "2 ms, 1.5 ms expected"]
    assert kernels.split(None, 1)[1] == "1 of 3" and failed.split(None, 1)[1] == "2 crash"
    assert "5 trials, 0:25 left" in bar and (bar.count("━"), bar.count("─")) == (11, 18)
    assert "timing; " in last
