"""Spaces: every candidate of every sketch is legal, within the device's limits, and computes the right values."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from tensorlang.autotune.measuring.jobs import Arrays, BuildJob, build_candidate, difference
from tensorlang.autotune.measuring.seeded import seeded_inputs
from tensorlang.autotune.model.estimate import Machine, estimate
from tensorlang.autotune.space import sketches_of
from tensorlang.autotune.space.contraction import contraction_of
from tensorlang.autotune.space.structure import heaviest, stages_of
from tensorlang.autotune.task import Task, create_task, extent
from tensorlang.schedule import Trace, create_schedule
from tensorlang.target.backend import backend
from tensorlang.te.reference import evaluate, tolerance

OPERATORS = str(Path(__file__).with_name("operators.py"))
TASKS: dict[str, tuple[str, tuple[int | str, ...]]] = {
    "matmul": ("matmul", (37, 53, 61)),
    "matmul-small": ("matmul", (5, 7, 3)),
    "matmul-thin": ("matmul", (2, 64, 16)),
    "matmul-double": ("matmul", (16, 48, 8, "float64")),
    "max-of-min": (f"{OPERATORS}:max_of_min", (13, 35, 9, "int32")),
    "transposed": (f"{OPERATORS}:times_transposed", (9, 40, 17)),
    "convolution": (f"{OPERATORS}:convolve_and_clip", (3, 19, 5)),
    "softmax": (f"{OPERATORS}:softmax", (6, 37)),
    "total": (f"{OPERATORS}:total", (100,)),
    "gather": (f"{OPERATORS}:rows_by_index", (10, 33, 7)),
    "transpose": (f"{OPERATORS}:transpose", (20, 33)),
}


def _task(name: str, threads: int) -> Task:
    operator, args = TASKS[name]
    return create_task(operator, args, threads=threads)


def _run(task: Task, trace: object) -> str:
    """Build and run a candidate in this process; how its outputs differ from the reference."""
    kernel = pickle.loads(build_candidate(BuildJob(pickle.dumps(task.tensors), trace, task.target)))
    inputs = seeded_inputs(task, 3)
    values = evaluate(task.program, inputs)
    arrays = Arrays(inputs, tuple(values[t.name] for t in task.outputs), *tolerance(task.program))
    outputs = [np.empty([extent(n) for n in t.shape], values[t.name].dtype) for t in task.outputs]
    backend(task.target.kind).compile(kernel, task.target)(*inputs, *outputs)
    return difference(arrays, outputs)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", TASKS)
def test_candidates_of_every_sketch_are_legal_and_right(name: str, threads: int) -> None:
    task, rng = _task(name, threads), np.random.default_rng(1)
    sketches = sketches_of(task)
    assert sketches
    for sketch in sketches:
        rows = sketch.sample(rng, 64)
        assert len(rows), f"{sketch.name} has no candidate"
        trace = sketch.trace.with_decisions(sketch.decisions(rows[0]))
        assert _run(task, json.loads(json.dumps(trace.to_json()))) == "", f"{sketch.name} {sketch.decisions(rows[0])}"


@pytest.mark.parametrize("name", ["matmul", "matmul-double", "convolution", "softmax"])
def test_register_tiles_stay_within_the_registers(name: str) -> None:
    task = _task(name, 1)
    lanes = task.target.lanes(heaviest(stages_of(task)).bits)
    for sketch in sketches_of(task):
        every = [sketch.decisions(row) for row in sketch.sample(np.random.default_rng(0), 300)]
        vectors = {(d["rows"], -(-d["width"] // lanes)) for d in every if "rows" in d}
        assert all(rows * wide + 1 <= task.target.vector_registers for rows, wide in vectors)


def test_the_nest_of_a_contraction_walks_the_loops_of_its_schedule() -> None:
    """Trips of the nest, outermost first, against the extents in the schedule's state."""
    task = _task("matmul-double", 1)
    for sketch in sketches_of(task):
        row = sketch.sample(np.random.default_rng(5), 1)[0]
        decisions = sketch.decisions(row)
        trace = Trace.from_json(sketch.trace.with_decisions(decisions).to_json())
        schedule = trace.apply(create_schedule([t.op for t in task.outputs]), check="final")
        nest = sketch.nest(sketch.columns(row.reshape(1, -1)))
        axes = schedule.state.axis_ranges("C")
        loops = [int(str(axes[leaf].extent)) for leaf in schedule.state.stages["C"].leaves]
        trips = [int(loop.trips[0]) for loop in nest.loops if loop.axis != "k"]
        # Blocks that exceed their axis are cut short: the nest counts what runs.
        assert all(t <= n for t, n in zip(trips, loops, strict=True))
        assert trips[-2:] == loops[-2:] == [decisions["rows"], decisions["width"]]


def test_a_contraction_is_recognised_whatever_it_combines() -> None:
    found = {name: contraction_of(heaviest(stages_of(_task(name, 1)))) is not None for name in TASKS}
    assert {name for name, yes in found.items() if yes} == {
        "matmul",
        "matmul-small",
        "matmul-thin",
        "matmul-double",
        "max-of-min",
        "transposed",
    }


def test_estimates_of_whole_spaces_are_finite_and_positive() -> None:
    for name in TASKS:
        task = _task(name, 2)
        machine = Machine.of(task.target)
        for sketch in sketches_of(task):
            nest = sketch.nest(sketch.columns(sketch.sample(np.random.default_rng(0), 200)))
            seconds = estimate(nest, machine, 2).seconds
            assert np.isfinite(seconds).all()
            assert (seconds > 0).all()
