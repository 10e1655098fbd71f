"""Logs of AutoTVM and Ansor as records: each replayed, proven and run; each bad line refused by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tensorlang import te, topi
from tensorlang.autotune import Status, apply_history_best, replay
from tensorlang.autotune.importers.importing import Imported, import_log
from tensorlang.autotune.importers.programs import sources_from
from tensorlang.autotune.search_task import find_workload, register_workload
from tensorlang.autotune.task import arguments_of, create_task
from tensorlang.autotune.templates.task import template_task
from tensorlang.autotune.validation import Outcome, validate
from tensorlang.errors import DefinitionError, RecordError
from tensorlang.target import parse
from tensorlang.target.spec import GpuLimits, Target
from tensorlang.testing import check_schedule

from . import programs
from .written import ANSOR, AUTOTVM, CPU, ON_A_GPU, PROGRAMS, ansor, autotvm, tiles

FUNCTIONS = {f.__name__: f for f in (programs.matmul, programs.matmul_add, programs.scaled, programs.conv2d_layer)}


def read(tmp_path: Path, *lines: str, **options: Any) -> Imported:
    path = tmp_path / "tvm.json"
    path.write_text("\n".join(lines) + "\n")
    return import_log(path, **{"programs": FUNCTIONS, **options})


@pytest.mark.sampled(4)
@pytest.mark.parametrize("line", [*ANSOR.values(), *AUTOTVM.values()], ids=[*ANSOR, *AUTOTVM])
def test_a_line_becomes_a_record_that_replays_and_is_right(line: str, tmp_path: Path) -> None:
    imported = read(tmp_path, line)
    assert not imported.refused
    (made,) = imported.lines
    assert made.record.verdict.legal
    assert made.record.status is Status.OK
    schedule = replay(made.record, made.task)
    assert schedule.trace.key == made.record.trace_key
    check_schedule(schedule, arguments_of(made.task.tensors), targets=["llvm"])


def test_a_schedule_for_a_gpu_is_proven_and_interpreted(tmp_path: Path) -> None:
    (made,) = read(tmp_path, ON_A_GPU).lines
    record = made.record
    assert record.target["kind"] == "cuda"
    assert Target.from_json(record.target).gpu == GpuLimits(1024, 49152, 32)
    assert "thread_warp_size" in record.conditions["target"]
    check_schedule(replay(record, made.task), arguments_of(made.task.tensors), targets=["interpreter"])


def test_a_record_says_what_the_log_says(tmp_path: Path) -> None:
    first, second = read(tmp_path, ANSOR["fused"], AUTOTVM["open"]).records
    assert first.seconds == (0.002, 0.003)
    assert first.target == parse("llvm -mcpu=skylake-avx512 -num-cores=2").to_json()
    assert (first.threads, second.threads) == (2, 2)
    assert (first.time, second.time) == ("2020-09-13T12:26:40Z", "2020-09-13T12:26:40Z")
    assert (first.versions, second.versions) == ({"auto_scheduler": "v0.3"}, {"autotvm": "0.2", "tvm": "0.17"})
    assert first.conditions == {"imported": "ansor v0.3", "target": CPU}
    assert (first.host, first.checked, first.sketch) == ({}, False, "ansor v0.3")
    assert str(first.workload) == "matmul_add(24, 16, 20, float32)"


def test_another_target_can_be_given(tmp_path: Path) -> None:
    (record,) = read(tmp_path, ANSOR["tiled"], target="llvm -mcpu=haswell -num-cores=7").records
    assert (record.target["cpu"], record.threads) == ("haswell", 7)
    assert record.conditions["target"] == CPU


def test_a_configuration_is_found_in_the_space_of_its_template(tmp_path: Path) -> None:
    opened, whole, other = read(tmp_path, *(AUTOTVM[name] for name in ("open", "whole", "other"))).records
    task = template_task(f"{PROGRAMS}:tuned_matmul", (24, 20, 16), "llvm")
    assert task is not None
    digits = {"tile_y": 3, "tile_x": 3, "ann": 2, "threads": 0}
    assert opened.decisions == digits
    assert task.config_space.number(list(digits.values())) == 3 + 8 * (3 + 6 * 2)
    assert whole.decisions == digits | {"ann": 0, "threads": 1}
    assert (other.decisions, other.sketch) == ({}, "autotvm 0.2")
    assert opened.settings == {"tile_y": [-1, 4], "tile_x": [-1, 5], "ann": ["vec"], "threads": True}
    assert other.choices == {"tile_y": [-1, 5], "tile_x": [-1, 7], "ann": ["unroll"], "threads": True}
    assert opened.sketch.startswith("importers/matmul ")


def test_programs_come_from_files(tmp_path: Path) -> None:
    lines = [ANSOR["tiled"], ANSOR["plain"], AUTOTVM["open"], AUTOTVM["window"]]
    records = read(tmp_path, *lines, programs=sources_from([str(PROGRAMS)])).records
    assert [r.workload.name for r in records] == [
        f"{PROGRAMS}:matmul",
        f"{PROGRAMS}:scaled",
        f"{PROGRAMS}:tuned_matmul",
        "conv2d_NCHWc.x86",
    ]
    assert [v.outcome for v in validate(records, run_files=True)] == [Outcome.LEGAL] * 4
    named = read(tmp_path, lines[0], programs={"matmul": f"{PROGRAMS}:matmul"}).records
    assert create_task(named[0].workload.name, named[0].workload.args).workload.key == named[0].workload.key


def test_one_function_or_another_name_can_be_given(tmp_path: Path) -> None:
    digest = "0123456789abcdef0123456789abcdef"
    known = sources_from([f"{digest}={PROGRAMS}:conv2d_layer", f"{PROGRAMS}:tuned_matmul"])
    assert list(known) == [digest, "importers/matmul"]
    imported = read(tmp_path, ansor("v0.6", [digest, 1, 4, 4, 4, 3], []), AUTOTVM["open"], programs=known)
    assert [r.workload.args for r in imported.records] == [(1, 4, 4, 4, 3), (24, 20, 16)]
    with pytest.raises(DefinitionError, match="names no function"):
        sources_from([f"name={PROGRAMS}"])


def test_a_file_that_registers_workloads_may_be_loaded_again() -> None:
    first, second = (sources_from([str(PROGRAMS)])["scaled"].function for _ in range(2))
    assert first is not second
    assert find_workload("scaled") is second
    with pytest.raises(DefinitionError, match="there is a workload 'scaled' already"):
        register_workload("scaled", programs.matmul)


def test_registered_workloads_are_known(tmp_path: Path) -> None:
    register_workload("importers/product", programs.matmul)
    (record,) = read(tmp_path, ansor("v0.6", ["importers/product", 8, 8, 8], []), programs=None).records
    assert str(record.workload) == "importers/product(8, 8, 8)"


REFUSED = {
    "it is a comment": "# kept for demonstration",
    "it is torn": ANSOR["tiled"][:100],
    "it is torn, or no JSON at all": "llvm\tgASVFAAAAAAAAACMAm9zlIwFYWJvcnSUk5QpUpQu\tgAR9lC4=\tgAR9lC4=\t0.1\t0.7",
    "it has lists in lists, deeper than any log": f'{{"i": {"[" * 80}{"]" * 80}}}',
    "its workload key has lists in lists": ansor("v0.6", "[" * 80 + "]" * 80, []),
    "step 0 of the log line, ['SP', 2, 0, 8, [1000000": ansor(
        "v0.6", ["matmul", 8, 8, 8], [["SP", 2, 0, 8, [10**40], 1]]
    ),
    "its workload 'relu' is unknown; say where": ansor("v0.6", ["relu", 8], []),
    "the hash of a graph": ansor("v0.6", "0123456789abcdef0123456789abcdef", []),
    "failed: it gave a wrong answer": ansor("v0.6", ["matmul", 8, 8, 8], [], costs=[1e10], error=5),
    "failed: error 99": ansor("v0.6", ["matmul", 8, 8, 8], [], costs=[1e10], error=99),
    "the imported schedule": ansor("v0.6", ["matmul", 8, 8, 8], [["AN", 2, 2, 3]]),
    "step 0 of the log line": ansor("v0.6", ["matmul", 8, 8, 8], [["SP", 7, 0, 8, [2], 1]]),
    "version 'v0.7' of Ansor; v0.2 to v0.6 of Ansor": ansor("v0.7", ["matmul", 8, 8, 8], []),
    "version 0.1 of AutoTVM; v0.2 to": autotvm("importers/matmul", [8, 8, 8], [], version=0.1),
    "no template 'dense_gpu.x86'": autotvm("dense_gpu.x86", [8], []),
    "which this configuration lacks": autotvm("importers/matmul", [8, 8, 8], [["tile_y", "sp", [-1, 2]]]),
    "its knob 'tile_y' has a value that the template does not offer, 2": autotvm(
        "importers/matmul", [8, 8, 8], [["tile_y", "ot", 2], *tiles([1], [1], "vec", True)[1:]]
    ),
    "would run at the same time": autotvm("importers/racing", [8, 8, 8], [["parallel", "ot", "sum"]]),
    "failed: TypeError": ansor("v0.6", ["matmul", 8, 8], []),
    "no times": ansor("v0.6", ["matmul", 8, 8, 8], [], costs=[0.0]),
    "v0.6 of Ansor, and not the fields": '{"i": [[]], "r": [], "v": "v0.6"}',
    "no line of AutoTVM or Ansor": '{"schema": 2}',
}


@pytest.mark.parametrize(("reason", "line"), REFUSED.items(), ids=list(REFUSED))
def test_a_bad_line_is_refused_alone(reason: str, line: str, tmp_path: Path) -> None:
    imported = read(tmp_path, ANSOR["tiled"], "", line, AUTOTVM["open"])
    assert [made.line for made in imported.lines] == [1, 4]
    (refusal,) = imported.refused
    assert refusal.line == 3
    assert reason in refusal.reason
    assert imported.log.foreign == 1


def test_a_function_is_no_template(tmp_path: Path) -> None:
    imported = read(tmp_path, autotvm("matmul", [8, 8, 8], []))
    assert "matmul is no template" in imported.refused[0].reason


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot read"):
        import_log(tmp_path / "none")


def test_operators_take_imported_records(tmp_path: Path) -> None:
    records = read(tmp_path, AUTOTVM["window"], target="llvm -num-cores=1").records
    data, weight = te.placeholder((1, 4, 7, 7), name="data"), te.placeholder((16, 4, 3, 3), name="weight")
    out = topi.conv2d(data, weight, 2, 1)
    with apply_history_best(records, miss="error"):
        schedule = topi.schedule(out, "llvm -num-cores=1")
    assert schedule.trace.key == records[0].trace_key
    check_schedule(schedule, [data, weight, out], targets=["llvm"])
