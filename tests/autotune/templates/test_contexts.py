"""Which configuration templates have that are called plainly, and templates in two parts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import autotune, te, topi
from tensorlang.autotune.records.by_hand import record_by_hand
from tensorlang.autotune.task import ApplyConfig, ApplyFixedConfig
from tensorlang.autotune.templates.config import Config
from tensorlang.errors import DefinitionError
from tensorlang.te.operation import Tensor

from .programs import matmul

TARGET = "llvm -num-cores=1"
ARGS = (16, 24, 12)


def test_a_configuration_is_applied() -> None:
    task = autotune.task.create(matmul, args=ARGS, target=TARGET)
    for number in (3, 700):
        with ApplyConfig(task.config_space.get(number)):
            s, _ = matmul(*ARGS)
        assert s.trace.key == task.trace(task.config_space.get(number)).key
    with pytest.raises(DefinitionError, match="takes a configuration of a task, got 3"):
        ApplyConfig(3)  # type: ignore[arg-type]


def test_contexts_may_be_nested_and_hide_each_other() -> None:
    task = autotune.task.create(matmul, args=ARGS, target=TARGET)
    plain, chosen = matmul(*ARGS)[0].trace.key, task.trace(task.config_space.get(700)).key
    fallback = autotune.FallbackContext()
    with ApplyConfig(task.config_space.get(700)):
        with fallback, fallback:
            assert matmul(*ARGS)[0].trace.key == plain
        assert matmul(*ARGS)[0].trace.key == chosen != plain


def test_the_first_configuration_of_tasks_by_name() -> None:
    task = autotune.task.create(matmul, args=ARGS, target=TARGET)
    first = task.trace(task.config_space.get(0)).key
    with ApplyFixedConfig([task], task.name):
        assert matmul(*ARGS)[0].trace.key == first
    with autotune.apply_fixed_config([task], ["another"]):
        assert matmul(*ARGS)[0].trace.steps


@autotune.register_topi_compute("tests/scaled.own")
def scaled(cfg: Config, data: Tensor, factor: int) -> Any:
    """Data times a number."""
    cfg.define_knob("unroll", [False, True])
    return te.compute(data.shape, lambda i: data[i] * factor, name="scaled")


@autotune.register_topi_schedule("tests/scaled.own")
def schedule_scaled(cfg: Config, outs: list[Tensor]) -> Any:
    """Tiles of what reads the scaled data, or of these."""
    s, out = te.create_schedule([t.op for t in outs]), outs[0]
    cfg.define_split("tile", out.op.axis[0], num_outputs=2)
    _, inner = cfg["tile"].apply(s, out, out.op.axis[0])
    if cfg["unroll"].val:
        s[out].unroll(inner)
    return s


def test_templates_in_two_parts_are_tasks() -> None:
    task = autotune.task.create("tests/scaled.own", args=(te.placeholder((16,), name="data"), 3), target=TARGET)
    assert len(task.config_space) == 10 and task.task.tensors[0].name == "data"
    s, args = task.instantiate(task.config_space.get(9))
    assert [t.name for t in args] == ["data", "scaled"] and s.trace.steps
    words = autotune.task.create("tests/scaled.own", args=(("TENSOR", (16,), "float32"), 3), target=TARGET)
    assert words.workload.key == task.workload.key


def test_parts_called_plainly_share_the_configuration_in_use() -> None:
    x = te.placeholder((16,), name="data")
    task = autotune.task.create("tests/scaled.own", args=(x, 3), target=TARGET)
    best = next(c for c in map(task.config_space.get, range(10)) if c["unroll"].val and c["tile"].size[-1] == 4)
    s, _ = task.instantiate(best)
    record = record_by_hand(task.task, s, [1e-6])
    record = replace(record, sketch=task.sketch, decisions=task.config_space.digits(best.index))
    with tensorlang.target.Target(TARGET), autotune.apply_history_best([record], miss="error"):
        made = scaled(x, 3)
        follower = topi.add(made, 1.0)
        assert schedule_scaled([made]).trace.key == s.trace.key
    assert "factor=4)" in str(schedule_scaled(follower))  # of what it is made from
    values = np.arange(16, dtype=np.float32)
    out = np.empty_like(values)
    other = scaled(x, 2)
    tensorlang.build(schedule_scaled(other), [x, other], target="interpreter")(values, out)
    np.testing.assert_array_equal(out, values * 2)


def test_parts_make_tensors() -> None:
    @autotune.register_topi_compute("tests/nothing.own")
    def nothing(cfg: Config, data: Tensor) -> Any:
        return 3

    with pytest.raises(DefinitionError, match="is of a tensor, or a list of tensors, got 3"):
        nothing(te.placeholder((4,)))
