"""Damaged logs of TVM: every line becomes a schedule that is proven, or is refused with a reason; nothing else."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tensorlang.autotune import replay
from tensorlang.autotune.importers.importing import import_log
from tensorlang.autotune.records.log import record_line
from tensorlang.autotune.records.record import TuningRecord

from .test_import_log import FUNCTIONS
from .written import ANSOR, AUTOTVM, ansor, autotvm, tiles

ODD: list[Any] = [0, -1, 2**63, 10**40, 10**400, -0.5, 1e308, float("nan"), True, None, "", "\x00", [], [[]], {}]
ROUNDS = 5  # damages of every line


def _places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = enumerate(data) if isinstance(data, list) else data.items() if isinstance(data, dict) else ()
    for key, value in items:
        yield from _places(value, (*path, key))


def _damaged(line: str, rng: random.Random) -> str:
    """A line cut off, or with something in it removed, doubled, or replaced by what does not belong there."""
    if rng.random() < 0.1:
        return line[: rng.randrange(1, len(line))]
    data = json.loads(line)
    steps = data["i"][1] if "i" in data else data["config"]
    part = rng.choice([data, steps])
    *outer, last = rng.choice(list(_places(part)))
    for key in outer:
        part = part[key]
    old = part[last]
    match rng.randrange(4):
        case 0:
            del part[last]
        case 1 if isinstance(part, list):
            part.insert(last, old)
        case 2 if isinstance(old, int):
            part[last] = rng.choice([-old - 1, old + 1, 2 * old, rng.randrange(12)])
        case _:
            part[last] = rng.choice(ODD)
    return json.dumps(data)


@pytest.mark.parametrize("name", [*ANSOR, *AUTOTVM])
def test_a_damaged_line_is_refused_or_a_proven_schedule(name: str, tmp_path: Path) -> None:
    rng = random.Random(name)
    lines = [_damaged((ANSOR | AUTOTVM)[name], rng) for _ in range(ROUNDS)]
    path = tmp_path / "tvm.json"
    path.write_text("\n".join(lines))
    imported = import_log(path, programs=FUNCTIONS)
    assert len(imported.lines) + len(imported.refused) == len([line for line in lines if line.strip()])
    assert all(refusal.reason for refusal in imported.refused)
    for made in imported.lines:
        assert TuningRecord.from_json(json.loads(record_line(made.record))) == made.record
        assert replay(made.record, made.task).trace.key == made.record.trace_key


_SPLIT = ["SP", 2, 0, 8, [2], 1]
WRONG_STEPS = {
    "a stage below zero": [["AN", -1, 0, 3]],
    "a loop below zero": [["AN", 2, -3, 3]],
    "a split that follows a step below zero": [_SPLIT, ["FSP", 2, 2, -2, 1]],
    "a split that follows no split": [["RE", 2, [0, 1, 2], 8, [2]], ["FSP", 2, 0, 0, 1]],
    "an order of some of the loops": [["RE", 2, [1, 0]]],
    "an order with a loop twice": [["RE", 2, [0, 1, 1]]],
    "a level below zero": [_SPLIT, ["FFSP", 2, 2, [0], -1, 1]],
    "a reader below zero": [["CHR", 0, "local", [-1]]],
}


@pytest.mark.parametrize("steps", WRONG_STEPS.values(), ids=list(WRONG_STEPS))
def test_a_number_that_names_nothing_is_refused(steps: list[Any], tmp_path: Path) -> None:
    """What Python would count from the end, and what the steps behind it would take for other loops."""
    path = tmp_path / "tvm.json"
    path.write_text(ansor("v0.6", ["matmul", 8, 8, 8], steps))
    imported = import_log(path, programs=FUNCTIONS)
    assert not imported.lines
    assert "of the log line" in imported.refused[0].reason or "twice" in imported.refused[0].reason


def test_numbers_that_nothing_can_hold_are_refused(tmp_path: Path) -> None:
    knobs = tiles([-1, 4], [-1, 5], "vec", True)
    lines = [
        ansor("v0.6", ["matmul", 8, 8, 8], [], costs=[10**400]),
        autotvm("importers/matmul", [10**18, 20, 16], knobs),
        autotvm("importers/matmul", [8, 20, 16], knobs, target=f"llvm -num-cores={'9' * 5000}"),
        autotvm("importers/matmul", [8, 20, 16], knobs, target="llvm -num-cores=²"),
    ]
    path = tmp_path / "tvm.json"
    path.write_text("\n".join(lines))
    imported = import_log(path, programs=FUNCTIONS)
    assert [refusal.line for refusal in imported.refused] == [1, 2]
    assert [made.record.threads for made in imported.lines] == [1, 1]  # nobody tells how many cores
