"""The benchmark of operators, on tiny sizes: our kernels and NumPy against float64, and its page."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import cpu, vocabulary
from benchmarks.__main__ import main
from benchmarks.contest import largest_error
from benchmarks.operator_report import PAGE
from benchmarks.own_vocabulary import BUILDERS
from benchmarks.peers import numpy_vocabulary
from benchmarks.peers.serve import Builder, Given
from benchmarks.report import BEGIN, END
from benchmarks.vocabulary import CASES, Case

TINY = (
    vocabulary.transposed_convolution_case(3, 5, 2),
    vocabulary.convolution_case("conv1d", 3, 2, 7),
    vocabulary.convolution_case("conv3d", 2, 3, 3, 4, 5),
    vocabulary.resize_case(2, 5),
    vocabulary.topk_case(50, 7),
    vocabulary.cumsum_case(3, 9),
    vocabulary.argsort_case(3, 9),
    vocabulary.lstm_case(3, 5, 4),
    vocabulary.scatter_add_case(5, 12, 3),
    vocabulary.sparse_case(20, 0.1, 6),
)


def error(builder: Builder, case: Case) -> float:
    inputs = case.inputs()
    made = builder(Given(inputs, case.constant, case.all_options, 1))()
    return largest_error(np.asarray(made), case.reference(inputs))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", TINY, ids=lambda c: c.operator)
def test_our_kernel_is_right(case: Case) -> None:
    assert error(BUILDERS[case.operator], case) <= case.tolerance


@pytest.mark.parametrize("case", [c for c in TINY if c.operator in numpy_vocabulary.BUILDERS], ids=lambda c: c.operator)
def test_numpy_is_right(case: Case) -> None:
    assert error(numpy_vocabulary.BUILDERS[case.operator], case) <= case.tolerance


def test_every_operator_is_ours_and_has_a_tiny_size() -> None:
    assert len({c.name for c in CASES}) == len(CASES)
    assert {c.operator for c in CASES} == set(BUILDERS) == {c.operator for c in TINY}


@pytest.mark.parametrize("case", TINY, ids=lambda c: c.operator)
def test_sizes_of_results(case: Case) -> None:
    assert case.result == case.reference(case.inputs()).size


def test_a_run_and_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tiny,) = (c for c in TINY if c.operator == "cumsum")
    monkeypatch.setattr(vocabulary, "CASES", (tiny,))
    monkeypatch.setattr(cpu, "CORETYPES", ("",))
    out, page = tmp_path / "result.json", tmp_path / "page.md"
    made = CliRunner().invoke(
        main, ["operators", "--threads", "1", "--peer", "numpy", "--rounds", "1", "--json", str(out)]
    )
    (found,) = json.loads(out.read_text(encoding="utf-8"))["workloads"]
    assert set(found["seconds"]) == {"tensorlang", "NumPy"}, made.output
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    assert CliRunner().invoke(main, ["operators-report", str(out), "--page", str(page)]).exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert "| cumsum-rows-3x9 | " in text and "old" not in text
    assert f"| {found['ratio']:.2f} | " in text


def test_the_page_has_every_operator_of_both_runs() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert all(text.count(f"| {case.name} |") == 2 for case in CASES)
