"""Imported schedules run on this machine."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np

from tensorlang.autotune.importers.importing import Imported, import_log
from tensorlang.autotune.importers.programs import sources_from
from tensorlang.autotune.importers.verifying import Ending, run_against, verify
from tensorlang.autotune.measuring.arrays import Arrays
from tensorlang.autotune.measuring.jobs import BuildJob
from tensorlang.target import parse

from .written import ANSOR, AUTOTVM, ON_A_GPU, PROGRAMS


def read(tmp_path: Path, *lines: str) -> Imported:
    (tmp_path / "tvm.json").write_text("\n".join(lines))
    return import_log(tmp_path / "tvm.json", sources_from([str(PROGRAMS)]))


def test_each_schedule_is_run_and_the_record_says_so(tmp_path: Path) -> None:
    imported = read(tmp_path, ANSOR["tiled"], ON_A_GPU, AUTOTVM["open"], AUTOTVM["window"])
    found = list(verify(imported))
    assert [v.ending for v in found] == [Ending.EQUAL, Ending.NOT_RUN, Ending.EQUAL, Ending.EQUAL]
    assert [v.imported.record.checked for v in found] == [True, False, True, True]
    assert found[1].why == "cuda does not run here; it is proven legal"
    assert [v.imported.record.seconds for v in found] == [r.seconds for r in imported.records]


def test_a_schedule_that_does_not_build_has_failed(tmp_path: Path) -> None:
    imported = read(tmp_path, ANSOR["tiled"], ANSOR["fused"])
    first, second = imported.lines
    swapped = replace(first, record=replace(first.record, trace=second.record.trace))
    (found,) = verify(replace(imported, lines=(swapped,)))
    assert (found.ending, found.imported.record.checked) == (Ending.FAILED, False)
    assert found.why


def test_a_wrong_output_is_told(tmp_path: Path) -> None:
    (line,) = read(tmp_path, ANSOR["tiled"]).lines
    job = BuildJob(pickle.dumps(line.task.tensors), line.record.trace, replace(parse("llvm"), cores=1))
    a, b = np.ones((24, 16), "float32"), np.ones((16, 20), "float32")
    right = a @ b
    assert not run_against(job, Arrays((a, b), (right,), 1e-5, 1e-5))
    assert "output 0 differs at 480 of 480 elements" in run_against(job, Arrays((a, b), (right + 1,), 1e-5, 1e-5))
