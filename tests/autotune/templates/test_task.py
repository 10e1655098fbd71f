"""Templates as functions and as tasks: what a configuration gives, what is refused, what a plain call gives."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tensorlang import autotune, te
from tensorlang.autotune import ConfigEntity, OtherOptionEntity, SplitEntity, TemplateTask
from tensorlang.autotune.templates.task import create
from tensorlang.errors import DefinitionError, RecordError, ScheduleError
from tensorlang.schedule import Trace, create_schedule
from tensorlang.schedule.schedule import proven_at_the_end
from tensorlang.target.spec import Target
from tensorlang.testing import check_schedule

from .programs import limited, matmul, nothing_legal, rows


@pytest.fixture(scope="module")
def task() -> TemplateTask:
    return create("tests/matmul", args=(16, 24, 12), target="llvm -num-cores=1")


def test_a_task_knows_its_space_program_and_target(task: TemplateTask) -> None:
    assert task.config_space.shape == (5, 8, 6, 3, 3)
    assert (task.name, task.args, task.target.cores) == ("tests/matmul", (16, 24, 12), 1)
    assert str(task.workload) == "tests/matmul(16, 24, 12)"
    assert task.flop == 2 * 16 * 24 * 12
    assert repr(task).startswith(
        "TemplateTask('tests/matmul', args=(16, 24, 12), 2160 configurations, Task(tests/matmul("
    )
    assert repr(task).endswith("threads=1))") and "\n" not in repr(task)
    assert autotune.task.create("tests/rows", args=(8, 6)).flop == 48


@pytest.mark.parametrize("index", [0, 77, 1234, 2159])
def test_a_configuration_gives_a_right_schedule(task: TemplateTask, index: int) -> None:
    s, tensors = task.instantiate(task.config_space.get(index))
    check_schedule(s, tensors)


def test_steps_replay_without_the_template(task: TemplateTask) -> None:
    config = task.config_space.get(1234)
    trace = task.trace(config)
    again = Trace.from_json(trace.to_json()).apply(create_schedule([t.op for t in task.task.outputs]))
    assert again.trace.key == trace.key == task.trace(config).key


def test_what_is_illegal_raises_and_the_space_is_found_all_the_same() -> None:
    task = autotune.task.create(rows, args=(8, 6))
    assert task.config_space.shape == (2, 2, 3)
    verdicts = []
    for index in range(task.config_space.size):
        config = task.config_space.get(index)
        try:
            check_schedule(*task.instantiate(config))
            verdicts.append((config["vector"].val, True))
        except ScheduleError:
            verdicts.append((config["vector"].val, False))
    assert set(verdicts) == {("sum", False), ("rows", True)}


def test_a_space_without_a_legal_point_says_what_refused_it() -> None:
    with pytest.raises(ScheduleError, match=r"none of 8 configurations tried is legal(.|\n)*vectorize\('k'\)"):
        autotune.task.create(nothing_legal, args=(8,))


def test_filters_and_refusals_of_the_template() -> None:
    task = autotune.task.create(limited, args=(8,))
    space = task.config_space
    tall, wide, large = space.number([2, 1]), space.number([1, 2]), space.number([3, 3])
    assert not space.is_index_valid(large) and len(space) < space.range_length == 16
    with pytest.raises(IndexError, match="does not allow the configuration of number 15"):
        space.get(large)
    with pytest.raises(ScheduleError, match="tall tiles are slow"):
        task.instantiate(space.get(tall))
    with pytest.raises(ScheduleError, match="a multi_filter of the template does not allow it"):
        task.instantiate(space.at(large))
    assert task.instantiate(space.get(wide))[0].trace.steps


def test_a_plain_call_gives_the_first_configuration_and_may_set_its_own() -> None:
    s, tensors = matmul(16, 24, 12)
    assert "split('i', factor=1)" in str(s)
    assert [t.name for t in tensors] == ["A", "B", "C"]

    @autotune.template("tests/fallback")
    def fallback(n: int) -> Any:
        A = te.placeholder((n,), name="A")
        B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
        s = te.create_schedule(B.op)
        cfg = autotune.get_config()
        cfg.define_split("tile", s[B].op.axis[0], num_outputs=3)
        if cfg.is_fallback:
            cfg.fallback_split("tile", [-1, 8, 4])  # type: ignore[attr-defined]
        cfg["tile"].apply(s, B, s[B].op.axis[0])
        return s, [A, B]

    for extent, sizes in ((128, [4, 8, 4]), (49, [7, 7, 1])):
        s, _ = fallback(extent)
        assert f"factor={sizes[1] * sizes[2]})" in str(s)
        assert f"factor={sizes[2]})" in str(s)
    assert (
        autotune.task.create(fallback, args=(128,))
        .trace(autotune.ConfigEntity(0, {"tile": SplitEntity([-1, 2, 2])}))
        .to_python()
        .count("factor=2")
        == 1
    )


def test_a_configuration_of_another_template_is_refused(task: TemplateTask) -> None:
    with pytest.raises(
        RecordError, match="the template defines 'tile_y', which this configuration lacks; it has other"
    ):
        task.instantiate(autotune.ConfigEntity(0, {"other": SplitEntity([-1, 2])}))


def test_knobs_are_for_schedules_not_for_programs() -> None:
    @autotune.template("tests/two_programs")
    def two(n: int) -> Any:
        cfg = autotune.get_config()
        cfg.define_knob("more", [1, 2])
        A = te.placeholder((n,), name="A")
        B = te.compute((n,), lambda i: A[i] * cfg["more"].val, name="B")
        return te.create_schedule(B.op), [A, B]

    task = autotune.task.create(two, args=(8,))
    with pytest.raises(ScheduleError, match="the program differs from that of other configurations"):
        task.instantiate(task.config_space.get(1))


def test_mistakes_are_explained() -> None:
    with pytest.raises(DefinitionError, match=r"no template 'tests/matmull'; .*tests/matmul"):
        autotune.task.create("tests/matmull", args=(1, 2, 3))
    with pytest.raises(DefinitionError, match=r"get_config\(\) is for the body of a function"):
        autotune.get_config()

    @autotune.template("tests/no_result")
    def none() -> Any:
        return [te.placeholder((2,), name="A")]

    with pytest.raises(DefinitionError, match=r"template 'tests/no_result' returns \(schedule, \[inputs, outputs\]\)"):
        none()


def test_the_target_in_use_is_the_default() -> None:
    seen: list[Target | None] = []

    @autotune.template("tests/asks_target")
    def asks(n: int) -> Any:
        seen.append(Target.current())
        A = te.placeholder((n,), name="A")
        B = te.compute((n,), lambda i: A[i], name="B")
        return te.create_schedule(B.op), [A, B]

    wanted = autotune.task.create(asks, args=(4,), target="llvm -mcpu=haswell").target
    with wanted:
        assert autotune.task.create(asks, args=(4,)).target == wanted
    assert seen == [wanted, wanted]
    assert Target.current() is None


def test_arguments_that_are_no_scalars_are_kept_as_text() -> None:
    @autotune.template("tests/pairs")
    def pairs(shape: tuple[int, int]) -> Any:
        A = te.placeholder(shape, name="A")
        B = te.compute(shape, lambda i, j: A[i, j], name="B")
        return te.create_schedule(B.op), [A, B]

    assert autotune.task.create(pairs, args=((2, 3),)).workload.args == ("(2, 3)",)


@te.hybrid.script
def running_sums(a):  # type: ignore[no-untyped-def]
    b = output_tensor(a.shape, a.dtype)  # type: ignore[name-defined]  # noqa: F821
    b[0] = a[0]
    for i in range(1, a.shape[0]):
        b[i] = b[i - 1] + a[i]
    return b


@autotune.template("tests/there_and_back")
def there_and_back(n: int, turns: int) -> Any:
    """A loop that must run forwards, turned around some times: legal at the end, or not."""
    A = te.placeholder((n,), name="A")
    B = running_sums(A)
    s = te.create_schedule(B.op)
    autotune.get_config().define_knob("idle", [1])
    for _ in range(turns):
        loop = s[B].leaf_iter_vars[-1]
        s[B].reverse(loop)
    return s, [A, B]


def test_what_counts_is_the_schedule_at_the_end() -> None:
    task = autotune.task.create(there_and_back, args=(8, 2))
    s, tensors = task.instantiate(task.config_space.get(0))
    check_schedule(s, tensors)
    assert len(s.trace.steps) == 2
    with pytest.raises(ScheduleError):  # and each later step is proven as ever
        s[tensors[1]].reverse(s[tensors[1]].leaf_iter_vars[-1])
    with pytest.raises(ScheduleError, match=r"none of 8 configurations(.|\n)*reverse"):
        autotune.task.create(there_and_back, args=(8, 1))


def test_proofs_at_the_end_name_what_was_asked() -> None:
    A = te.placeholder((8,), name="A")
    B = running_sums(A)
    with pytest.raises(ScheduleError, match="several steps"), proven_at_the_end("several steps"):
        s = te.create_schedule(B.op)
        s[B].reverse(s[B].leaf_iter_vars[-1])
    with proven_at_the_end("several steps"):
        te.create_schedule(B.op)


def test_settings_tell_what_a_configuration_is(task: TemplateTask) -> None:
    settings = task.config_space.get(1234).settings()
    assert set(settings) == set(task.config_space.space_map)
    assert settings["tile_y"] == task.config_space.get(1234)["tile_y"].size
    assert settings["auto_unroll_max_step"] in (0, 16, 64)
    assert json.loads(json.dumps(settings)) == settings
    odd = ConfigEntity(
        0, {"n": OtherOptionEntity(np.int64(3)), "t": OtherOptionEntity((1, {2})), "f": OtherOptionEntity(len)}
    )
    assert odd.settings() == {"n": 3, "t": [1, "{2}"], "f": "<built-in function len>"}
