"""Where tuners of templates measure, and within which limits, in AutoTVM's words; no kernel is built here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tensorlang import autotune
from tensorlang.autotune import TemplateTask
from tensorlang.autotune.measuring.harness import Limits
from tensorlang.autotune.templates.task import create
from tensorlang.autotune.tuners.index import GridSearchTuner, RandomTuner
from tensorlang.errors import DefinitionError, MissingDependency, TargetError
from tensorlang.target import parse

from ..templates.programs import matmul
from .fakes import FakeMachines, fake_measurer


@pytest.fixture(scope="module")
def task() -> TemplateTask:
    return create(matmul, args=(16, 24, 12), target="llvm -num-cores=1")


def test_measure_options_in_classic_words() -> None:
    made = autotune.measure_option(
        builder=autotune.LocalBuilder(timeout=7, n_parallel=2),
        runner=autotune.LocalRunner(number=5, repeat=1, timeout=3, min_repeat_ms=50, enable_cpu_cache_flush=True),
    )
    assert made == autotune.MeasureOption(Limits(build=7, run=3, builders=2, flush=True))
    assert autotune.measure_option(builder="local", runner="local") == autotune.MeasureOption()


@autotune.template("tests/lanes")
def _lanes(n: int) -> object:
    """Its knob has as many candidates as the target's vectors have bytes."""
    from tensorlang import te
    from tensorlang.target.spec import Target

    target = Target.current()
    assert target is not None
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2.0, name="B")
    s = te.create_schedule(B.op)
    cfg = autotune.get_config()
    cfg.define_knob("factor", list(range(1, target.vector_bytes + 1)))
    s[B].split(s[B].op.axis[0], factor=cfg["factor"].val)
    return s, [A, B]


def test_a_tuner_moves_to_the_machines_of_its_runner() -> None:
    there = FakeMachines(parse("llvm -mcpu=haswell"), batch=16)
    tuner = RandomTuner(autotune.task.create("tests/lanes", args=(64,), threads=1))
    tuner.tune(24, measure_option=autotune.measure_option(runner=there))
    assert (tuner.task.target.cpu, tuner.task.task.threads) == ("haswell", 1)
    assert tuner.range_idx == (0, len(tuner.task.config_space)) == (0, 32)
    assert [r.target["cpu"] for r in tuner.records] == ["haswell"] * 24
    assert there.fakes[0].batches == [16, 8]
    tuner.tune(4, measure_option=autotune.measure_option(runner=there))
    assert tuner.trials == 28

    known = RandomTuner(autotune.task.create("tests/lanes", args=(64,), threads=1))
    known.search(fake_measurer()[0], 2)
    with pytest.raises(TargetError, match=r"has 2 measurements for llvm.*machines are llvm -mcpu=haswell.*reset"):
        known.tune(4, measure_option=autotune.measure_option(runner=there))
    known.reset()
    known.tune(4, measure_option=autotune.measure_option(runner=there))
    assert known.trials == 4


def test_a_task_for_the_target_of_the_machines_stays_as_it_is() -> None:
    there = FakeMachines(parse("llvm -mcpu=haswell -num-cores=1"))
    task = autotune.task.create(matmul, args=(16, 24, 12), target=there.target)
    tuner = GridSearchTuner(task)
    tuner.tune(2, measure_option=autotune.measure_option(runner=there))
    assert tuner.task is task
    assert tuner.trials == 2


def test_a_cluster_in_classic_words(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("ca", "cert", "key")]
    for file in files:
        file.touch()
    ca, cert, key = map(str, files)
    made = autotune.measure_option(
        runner=autotune.DaskRunner(
            "dask://host:8786/board",
            timeout=3,
            number=5,
            enable_cpu_cache_flush=True,
            build_timeout=7,
            build_parallel=2,
            tls_ca_file=files[0],
            tls_cert=files[1],
            tls_key=files[2],
        )
    )
    assert made.limits == Limits(build=7, run=3, builders=2, flush=True)
    assert (made.runner, made.tls) == ("dask://host:8786/board", (ca, cert, key))
    plain = autotune.measure_option(runner="dask://host:8786")
    assert plain == autotune.MeasureOption(Limits(), "dask://host:8786")
    there = FakeMachines(parse("llvm -mcpu=haswell"))
    with autotune.measure_option(runner=there).machines() as machines:
        assert machines is there
    with autotune.machines_of("local") as here:
        local = autotune.measure_option(autotune.LocalBuilder(n_parallel=2), here)
    assert (local.runner, local.limits.builders) == ("local", 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"runner": "rpc"}, "runner is 'local', a LocalRunner, 'dask://host:port', a DaskRunner or .*, got 'rpc'"),
        ({"runner": "dask://host"}, "not an address: 'dask://host'; write dask://host:port"),
        ({"builder": 3}, "builder is 'local' or a LocalBuilder, got 3"),
        (
            {"builder": "local", "runner": "dask://host:1"},
            r"got builder='local' beside a cluster, whose workers build .*DaskRunner\(address, build_timeout",
        ),
        (
            {"builder": autotune.LocalBuilder(), "runner": autotune.DaskRunner("dask://host:1")},
            r"got builder=LocalBuilder\(.*leave the builder out",
        ),
    ],
)
def test_measure_options_that_make_no_sense(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        autotune.measure_option(**settings)


def test_a_cluster_that_cannot_be() -> None:
    for wrong in ("tracker:9190", "local"):
        with pytest.raises(DefinitionError, match=f"not an address: '{wrong}'; write dask://host:port"):
            autotune.DaskRunner(wrong)
    with pytest.raises(DefinitionError, match="DaskRunner takes 'dask://host:port' or an open cluster, got 3"):
        autotune.DaskRunner(3)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="TLS needs three files; give tls_cert and tls_key as well"):
        autotune.DaskRunner("dask://host:1", tls_ca_file="ca.pem")


def test_only_measure_options_are_taken(task: TemplateTask) -> None:
    with pytest.raises(DefinitionError, match=r"is what autotune.measure_option\(...\) returns, got 'dask://host:1'"):
        RandomTuner(task).tune(1, measure_option="dask://host:1")  # type: ignore[arg-type]


def test_without_dask_the_error_names_the_extra(task: TemplateTask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingDependency, match=r"pip install 'tensorlang\[cluster\]'"):
        RandomTuner(task).tune(1, measure_option=autotune.measure_option(runner="dask://localhost:1"))
