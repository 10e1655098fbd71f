"""Spaces: every candidate of every sketch is legal, within the device's limits, and computes the right values."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tensorlang import topi
from tensorlang.autotune.measuring.arrays import Arrays, difference
from tensorlang.autotune.measuring.jobs import BuildJob, build_candidate
from tensorlang.autotune.measuring.seeded import seeded_inputs
from tensorlang.autotune.model.estimate import Machine, estimate
from tensorlang.autotune.model.features import feature_names, features
from tensorlang.autotune.model.nest import Nest, register_tile
from tensorlang.autotune.search.sketch import Sketch
from tensorlang.autotune.space import sketches_of
from tensorlang.autotune.space.seeds import SEED
from tensorlang.autotune.task import Task, create_task
from tensorlang.schedule import Trace, create_schedule
from tensorlang.schedule.primitives import Vectorize
from tensorlang.schedules.cpu.dots import Dots, dots_of
from tensorlang.schedules.recognise import Stage, groups_of, stages_of
from tensorlang.schedules.roles import all_roles
from tensorlang.target.backend import backend
from tensorlang.target.spec import Target
from tensorlang.te.operation import ComputeOp, buffers
from tensorlang.te.reference import evaluate, tolerance
from tests.thoroughness import draws

OPERATORS = str(Path(__file__).with_name("operators.py"))
TASKS: dict[str, tuple[str, tuple[int | str, ...]]] = {
    "matmul": ("matmul", (13, 37, 21)),
    "matmul-small": ("matmul", (5, 7, 3)),
    "matmul-thin": ("matmul", (2, 64, 16)),
    "matmul-double": ("matmul", (16, 48, 8, "float64")),
    "batch-matmul": ("batch_matmul", (3, 9, 33, 8)),
    "two-matmuls": (f"{OPERATORS}:two_products", (9, 20, 6, 18)),
    "max-of-min": (f"{OPERATORS}:max_of_min", (13, 35, 9, "int32")),
    "transposed": (f"{OPERATORS}:times_transposed", (9, 40, 17)),
    "convolution": (f"{OPERATORS}:convolve_and_clip", (2, 17, 20)),
    "depthwise": ("depthwise_conv2d", (1, 3, 9, 35, 3)),
    "softmax": (f"{OPERATORS}:softmax", (6, 37)),
    "layer-norm": ("layer_norm", (5, 37)),
    "total": (f"{OPERATORS}:total", (100,)),
    "row-sums": ("sum", (7, 70)),
    "argmax": ("argmax", (5, 37)),
    "gather": (f"{OPERATORS}:rows_by_index", (10, 33, 7)),
    "bags": (f"{OPERATORS}:bags", (40, 33, 7, 5)),
    "transpose": (f"{OPERATORS}:transpose", (20, 33)),
    "stencil": (f"{OPERATORS}:smooth_in_place", (20, 6)),
    "two-stencils": (f"{OPERATORS}:smooth_to_and_fro", (20, 4)),
    "running-sums": (f"{OPERATORS}:running_sums", (9, 40)),
    "pool": (f"{OPERATORS}:pool", (3, 19)),
    "contraction": (f"{OPERATORS}:contraction", (3, 5, 4, 6, 5, 16)),
    "few-rows": (f"{OPERATORS}:times_transposed", (3, 22, 70)),
    "channel-means": (f"{OPERATORS}:channel_means", (2, 5, 9)),
    "filter": (f"{OPERATORS}:separable_filter", (23, 70)),
    "words": ("dense_narrow", (13, 40, 20, "int8")),
}
DEEP: dict[str, tuple[str, tuple[int | str, ...]]] = {
    "product": ("matmul", (13, 37, 300)),
    "of-prime-depth": ("matmul", (6, 35, 307)),
    "transposed": (f"{OPERATORS}:times_transposed", (9, 40, 300)),
    "max-of-min": (f"{OPERATORS}:max_of_min", (13, 35, 300, "int32")),
    "convolution": (f"{OPERATORS}:convolve_and_clip", (40, 7, 20)),
}
"""Sums that are deep on a machine with small caches."""
SERVER = Target("llvm", vector_bytes=64, vector_registers=32, caches=(49152, 1 << 20, 1 << 25))


def _task(name: str, threads: int) -> Task:
    operator, args = TASKS[name]
    return create_task(operator, args, threads=threads)


@cache
def _sketches(name: str, threads: int) -> list[Sketch]:
    """To look at, in several tests."""
    return sketches_of(_task(name, threads))


def _deep(name: str) -> Task:
    operator, args = DEEP[name]
    task = create_task(operator, args, threads=2)
    return replace(task, target=replace(task.target, caches=(4096, 16384, 1 << 20)))


def _best(sketches: list[Sketch], target: Target) -> float:
    """The shortest estimate."""
    machine = Machine.of(target)
    return min(float(estimate(_nests(sketch, 400), machine, 1).seconds.min()) for sketch in sketches)


def _run(task: Task, trace: object) -> str:
    """Build and run a candidate in this process; how its outputs differ from the reference."""
    packed = build_candidate(BuildJob(pickle.dumps(task.tensors), trace, task.target))
    inputs = seeded_inputs(task, 3)
    values = evaluate(task.program, inputs)
    wanted = tuple(values[t.name] for t in task.outputs)
    arrays = Arrays(inputs, wanted, *tolerance(task.program), task.in_place)
    args, outputs = arrays.fresh()
    backend(task.target.kind).unpack(packed, task.target)(*args)
    return difference(arrays, outputs)


def _heaviest(task: Task) -> Stage:
    return max(stages_of(task.program), key=lambda stage: stage.points)


def _nests(sketch: Sketch, count: int) -> tuple[Nest, ...]:
    return sketch.describe(sketch.sample(np.random.default_rng(0), count))


def _chosen(sketches: list[Sketch], count: int = 3) -> list[Sketch]:
    """Some sketches of a long list, those at its ends among them: a build takes a while."""
    places = np.linspace(0, len(sketches) - 1, min(count, len(sketches)))
    return [sketches[int(n)] for n in places]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", TASKS)
def test_candidates_are_legal_and_right(name: str, threads: int) -> None:
    task, rng = _task(name, threads), np.random.default_rng(1)
    sketches = _sketches(name, threads)
    assert sketches
    for sketch in _chosen(sketches, draws(2, 4) if threads > 1 else 1):
        rows = sketch.sample(rng, 64)
        assert len(rows), f"{sketch.name} has no candidate"
        trace = sketch.trace.with_decisions(sketch.decisions(rows[0]))
        assert _run(task, json.loads(json.dumps(trace.to_json()))) == "", f"{sketch.name} {sketch.decisions(rows[0])}"


@pytest.mark.parametrize("name", ["matmul", "matmul-double", "convolution", "batch-matmul"])
def test_register_tiles_stay_within_the_registers(name: str) -> None:
    task = _task(name, 1)
    lanes = task.target.lanes(_heaviest(task).bits)
    seen = 0
    for sketch in _sketches(name, 1):
        every = [sketch.decisions(row) for row in sketch.sample(np.random.default_rng(0), 300)]
        for d in every:
            if "rows" in d:
                seen += 1
                vectors = -(-(d.get("width") or d["block"]) // lanes)
                tall = d["rows"] * d.get("deep", 1) * d.get("columns", 1)
                assert tall * vectors + 1 <= task.target.vector_registers
    assert seen


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", TASKS)
def test_nests_walk_the_loops_of_their_schedules(name: str) -> None:
    """The nests of a population against the extents in the state of each candidate's own schedule."""
    task = _task(name, 2)
    for sketch in _chosen(_sketches(name, 2)):
        rows = sketch.sample(np.random.default_rng(5), 3)
        nests = sketch.describe(rows)
        for n, row in enumerate(rows):
            trace = Trace.from_json(sketch.trace.with_decisions(sketch.decisions(row)).to_json())
            state = trace.apply(create_schedule([t.op for t in task.outputs]), check="final").state
            for stage in state.stages.values():
                op = state.program[stage.name]
                if stage.attach is not None or not isinstance(op, ComputeOp):
                    continue
                made = {b.name for b in buffers(op)}
                nest = next(nest for nest in nests if nest.output.buffer in made)
                ranges = state.axis_ranges(stage.name)
                trips = math.prod(loop.trips[n] for loop in nest.loops)
                points = math.prod(int(str(a.extent)) for a in (*op.axes, *op.reduce_axes))
                # Blocks that exceed their axis are cut short: a nest counts what runs.
                assert points <= trips <= math.prod(int(str(ranges[leaf].extent)) for leaf in stage.leaves)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", DEEP)
def test_deep_sums_are_made_in_parts(name: str) -> None:
    task, rng = _deep(name), np.random.default_rng(3)
    deep = [sketch for sketch in sketches_of(task) if sketch.name.endswith(".parts")]
    assert len(deep) > 1
    for sketch in _chosen(deep, 2):
        rows = sketch.sample(rng, 64)
        assert {sketch.decisions(row)["depth"] for row in rows} <= set(range(16, 300))
        trace = sketch.trace.with_decisions(sketch.decisions(rows[0]))
        assert _run(task, trace.to_json()) == "", f"{sketch.name} {sketch.decisions(rows[0])}"


def test_sums_are_made_in_parts_where_their_panels_fill_a_cache() -> None:
    def names(depth: int) -> list[str]:
        return [s.name for s in sketches_of(create_task("matmul", (64, 64, depth), SERVER, 1)) if s.name != SEED]

    assert not any(name.endswith(".parts") for name in names(512))
    assert any(name.endswith(".parts") for name in names(8192))


def test_the_estimate_wants_parts_of_a_deep_sum() -> None:
    sketches = [s for s in sketches_of(create_task("matmul", (512, 512, 16384), SERVER, 1)) if s.name != SEED]
    whole = [s for s in sketches if not s.name.endswith(".parts")]
    assert _best([s for s in sketches if s not in whole], SERVER) < _best(whole, SERVER)


def test_the_estimate_wants_windows_written_out() -> None:
    sketches = sketches_of(create_task("depthwise_conv2d", (1, 512, 14, 14, 3), SERVER, 1))
    reuse = [s for s in sketches if s.name.startswith("reuse")]
    copies = [s for s in reuse if s.name.endswith(".copies")]
    assert _best(copies, SERVER) < 0.95 * _best([s for s in reuse if s not in copies], SERVER)
    assert _best(copies, SERVER) < 1.1 * _best([s for s in sketches if s not in reuse], SERVER)


def test_sums_along_memory_that_use_little_again_are_dot_products() -> None:
    def found(name: str) -> Dots | None:
        return dots_of(_heaviest(_task(name, 1)), 16)

    assert found("few-rows") == Dots(("k",), ("i", "j"))
    assert found("row-sums") is not None
    assert found("channel-means") == Dots(("y", "x"), ("i",))  # images are apart, their rows are not
    assert [found(name) for name in ("matmul", "convolution", "pool", "total")] == [None] * 4


def test_a_tile_takes_narrow_vectors_of_a_second_axis_side_by_side() -> None:
    def beside(name: str) -> list[str | None]:
        return [roles.beside for roles in all_roles(_heaviest(_task(name, 1)), 16)]

    assert beside("contraction") == ["k"]
    assert beside("matmul") == beside("batch-matmul") == [None]  # the batch shares no rows
    task = _task("contraction", 1)
    for sketch in _sketches("contraction", 1):
        main = max(sketch.describe(rows := sketch.sample(np.random.default_rng(4), 200)), key=lambda n: n.operations)
        tile = register_tile(main, lanes := task.target.lanes(32))
        taken = [sketch.decisions(row) for row in rows]
        vectors = [-(-d.get("width", 16) // lanes) for d in taken]  # narrower ones, where 16 elements are no vector
        held = [d["rows"] * d["deep"] * d["beside"] * v for d, v in zip(taken, vectors, strict=True)]
        assert tile.accumulators.tolist() == held
        assert len({d["beside"] for d in taken}) > 1
        assert (tile.registers <= task.target.vector_registers).all()


def test_a_loop_around_others_is_not_run_in_vectors() -> None:
    (declared,) = [s for s in _sketches("running-sums", 1) if s.name == "declared"]
    assert isinstance(declared.trace, Trace)
    assert not any(isinstance(step, Vectorize) for step in declared.trace.steps)


def test_each_group_of_stages_gets_a_rule_of_its_own() -> None:
    def forms(name: str) -> set[str]:
        notes = topi.schedule(_task(name, 1).outputs, tuned=False).forms
        return {note.form.split(".")[0] for note in notes}

    for name in ("matmul", "matmul-double", "batch-matmul", "max-of-min", "transposed", "two-matmuls"):
        assert forms(name) == {"product"}
    assert forms("convolution") | forms("depthwise") | forms("pool") == {"windows"}
    assert forms("contraction") == {"reuse"}
    assert forms("softmax") == {"rows"}
    assert forms("total") == forms("row-sums") == {"lanes"} <= forms("argmax")
    assert forms("filter") == {"rings"}
    assert (forms("transpose"), forms("gather")) == ({"turned"}, {"along"})
    assert _sketches("stencil", 1)[0].name.startswith("reordered")


def test_the_library_s_forms_have_open_sizes_once() -> None:
    """What the library would take is a candidate of one sketch only, whatever the names of the groups."""
    for name in ("matmul", "transposed", "convolution", "depthwise", "pool", "two-matmuls"):
        (library,) = (sketch for sketch in _sketches(name, 1) if sketch.name == SEED)
        assert library.start is not None
        row = library.row(library.start)
        assert row is not None
        assert library.allowed(np.array([row])).all()
        assert library.size > 1
        assert sum(sketch.trace.key == library.trace.key for sketch in _sketches(name, 1)) == 1


def test_every_heavy_stage_is_tuned() -> None:
    sketches = _sketches("two-matmuls", 1)
    assert {"D_rows", "E_rows"} <= set(sketches[0].knobs)
    forms = {tuple(sketch.name.split("+")) for sketch in sketches if sketch.name != SEED}
    assert len({form[0] for form in forms}) > 1
    assert len({form[-1] for form in forms}) > 1


def test_what_follows_and_precedes_a_reduction_belongs_to_its_group() -> None:
    (group,) = groups_of(_task("convolution", 1).program)
    assert (group.main.name, group.output.name) == ("Y", "R")
    assert [p.name for p in group.producers] == ["P"]
    (rows,) = groups_of(_task("softmax", 1).program)
    assert [p.name for p in rows.parts] == ["M", "E", "S"]


def test_roles_are_read_off_the_accesses() -> None:
    def main(name: str) -> object:
        found = all_roles(_heaviest(_task(name, 1)), 16)
        return [(r.vector, r.rows, r.batch, r.windows, r.contiguous, r.packable) for r in found]

    assert main("matmul") == [("j", "i", (), (), True, True)]
    assert main("transposed") == [("j", "i", (), (), False, True)]
    assert main("batch-matmul") == [("j", "i", ("q",), (), True, True)]
    assert main("convolution") == [
        ("x", "f", ("y",), ("dx",), True, False),
        ("f", "x", (), ("dx",), False, True),
    ]
    assert main("row-sums") == []
    assert main("pool") == [("x", "y", ("q",), ("dy", "dx"), True, False)]  # every second element


def test_the_library_schedule_is_a_sketch_that_is_measured_first() -> None:
    task = _task("matmul", 1)
    seed = next(s for s in _sketches("matmul", 1) if s.name == SEED)
    assert seed.start is not None
    row = seed.row(seed.start)
    assert row is not None
    assert seed.allowed(np.array([row])).all()
    assert _run(task, seed.trace.with_decisions(seed.start).to_json()) == ""


def test_estimates_and_features_of_whole_spaces_are_finite() -> None:
    for name in TASKS:
        task = _task(name, 2)
        machine = Machine.of(task.target)
        for sketch in _sketches(name, 2):
            nests = _nests(sketch, draws(40, 200))
            guess = estimate(nests, machine, 2)
            rows = features(nests, guess, machine)
            assert np.isfinite(guess.seconds).all()
            assert (guess.seconds > 0).all()
            assert np.isfinite(rows).all()
            assert rows.shape[1] == len(feature_names())


def test_a_candidate_alone_is_described_as_in_a_population() -> None:
    task = _task("convolution", 2)
    machine = Machine.of(task.target)
    for sketch in _sketches("convolution", 2):
        rows = sketch.sample(np.random.default_rng(2), 20)
        together = sketch.describe(rows)
        alone = sketch.describe(rows[-1:])
        many = features(together, estimate(together, machine, 2), machine)
        one = features(alone, estimate(alone, machine, 2), machine)
        assert np.allclose(many[-1], one[0])


def test_a_packed_operand_is_read_in_whole_vectors() -> None:
    task = _task("transposed", 1)
    sketch = _sketches("transposed", 1)[0]
    main = max(_nests(sketch, 10), key=lambda nest: nest.operations)
    assert main.output.buffer == "C.local"
    assert (register_tile(main, task.target.lanes(32)).gathers == 0).all()
