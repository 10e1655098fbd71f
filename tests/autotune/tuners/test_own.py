"""Tuners, builders and runners of one's own, as AutoTVM and auto_scheduler have them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorlang import autotune, te
from tensorlang.autotune.tuners.tuner import Tuner
from tensorlang.errors import DefinitionError


@autotune.template("tests/own")
def doubled(n: int) -> Any:
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2, name="B")
    s = te.create_schedule(B.op)
    config = autotune.get_config()
    config.define_split("tile", s[B].op.axis[0], num_outputs=2)
    config["tile"].apply(s, B, s[B].op.axis[0])
    return s, [A, B]


def plain() -> Any:
    A = te.placeholder((16,), name="A")
    return [A, te.compute((16,), lambda i: A[i] * 2, name="B")]


class Clock:
    """Builds nothing, and measures no time: a tile of 4 is the best."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def build(self, measure_inputs: Sequence[Any]) -> list[Any]:
        return [autotune.BuildResult() for _ in measure_inputs]

    def run(self, measure_inputs: Sequence[Any], build_results: Sequence[Any]) -> list[Any]:
        assert len(measure_inputs) == len(build_results)
        tiles = [inp.trace.steps[0].factor for inp in measure_inputs]
        self.seen += tiles
        costs = [(abs(tile - 4) + 1) * 1e-3 for tile in tiles]
        return [
            autotune.MeasureResult((1e9,), 4, error_msg="lost")
            if tile == 1
            else autotune.MeasureResult((cost, cost), 0)
            for tile, cost in zip(tiles, costs, strict=True)
        ]


class Backwards(Tuner):
    """Tries configurations from the last one on, and counts what it is told."""

    def reset(self) -> None:
        super().reset()
        self.left, self.told = self.space.size, 0

    def next_batch(self, batch_size: int) -> Any:
        first = max(0, self.left - batch_size)
        batch = [self.space.get(n) for n in reversed(range(first, self.left))]
        self.left = first
        return batch

    def has_next(self) -> bool:
        return self.left > 0

    def update(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        super().update(inputs, results)
        self.told += len(results)


def test_a_tuner_a_builder_and_a_runner_of_ones_own(tmp_path: Path) -> None:
    task, clock, log = autotune.task.create("tests/own", args=(16,), target="llvm"), Clock(), tmp_path / "log"
    tuner = Backwards(task)
    option = autotune.measure_option(builder=clock, runner=clock)
    tuner.tune(10, option, callbacks=[autotune.callback.log_to_file(log)])
    assert clock.seen == [16, 8, 4, 2, 1][:: 1 if clock.seen[0] == 16 else -1] and tuner.told == 5
    assert (
        tuner.best_config is not None
        and tuner.best_config["tile"].size[-1] == 4
        and tuner.best is not None
        and tuner.best.seconds == 1e-3
    )
    assert [r.status.value for r in tuner.records].count("ok") == 4 and any(r.error == "lost" for r in tuner.records)
    known = autotune.tuner.GridSearchTuner(task)
    assert known.load_history(autotune.record.load_from_file(log)) == 5 and not known.has_next()
    assert known.best_config == tuner.best_config


def test_a_tuner_that_proposes_nothing_is_told() -> None:
    class Empty(Tuner):
        pass

    with pytest.raises(DefinitionError, match="Empty defines neither propose, nor next_batch"):
        Empty(autotune.task.create("tests/own", args=(16,), target="llvm")).tune(1)


def test_runners_return_a_result_for_each_input() -> None:
    class Short(Clock):
        def run(self, measure_inputs: Sequence[Any], build_results: Sequence[Any]) -> list[Any]:
            return []

    task = autotune.task.create("tests/own", args=(16,), target="llvm")
    with pytest.raises(DefinitionError, match=r"Short\.run returns a MeasureResult for each of \d inputs, got 0"):
        autotune.tuner.GridSearchTuner(task).tune(2, autotune.measure_option(runner=Short()))


def test_arrays_of_a_task_are_known_by_name_or_shape() -> None:
    A, at = te.placeholder((4,), name="A"), te.placeholder((3,), "int32", name="I")
    B = te.compute((3,), lambda i: A[at[i]], name="B")
    places = np.array([3, 0, 3], np.int32)
    task = autotune.SearchTask(lambda: [A, at, B], target="llvm", task_inputs={"prefix_I": places})
    assert task.task_inputs["I"].tolist() == [3, 0, 3]
    task = autotune.SearchTask(lambda: [A, at, B], target="llvm", task_inputs={"data": np.ones(4, np.float32)})
    assert list(task.task_inputs) == ["A"]
    with pytest.raises(DefinitionError, match=r"float32\[5\], is none of the inputs A: float32\[4\], I: int32\[3\]"):
        autotune.SearchTask(lambda: [A, at, B], target="llvm", task_inputs={"B": np.ones(5, np.float32)})


def test_rules_return_states_and_stages() -> None:
    task = autotune.SearchTask(plain, target="llvm")

    def rule(apply: Any) -> Any:
        made = autotune.PreloadCustomSketchRule(lambda policy, state, stage: 2 if stage == 1 else 0, apply)
        return autotune.SketchPolicy(task, init_search_callbacks=[made])

    def tiled(policy: Any, state: Any, stage: int) -> Any:
        state.split(stage, state[stage].iters[0], [None])
        return [[state.state_object, stage - 1]]

    (state,) = rule(tiled).generate_sketches()
    assert "sample_choice('split_0_0', [1, 2, 4, 8, 16]" in str(state)
    with pytest.raises(DefinitionError, match="returns pairs of a state and the number"):
        rule(lambda policy, state, stage: [state]).generate_sketches()
    with pytest.raises(DefinitionError, match="go on with an earlier one"):
        rule(lambda policy, state, stage: [(state, stage)]).generate_sketches()
