"""TVM's templates for x86: their spaces, what their configurations compute, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorlang import te, topi
from tensorlang.autotune.templates.registry import SHIPPED, find_template
from tensorlang.autotune.templates.task import TemplateTask, create, template_task
from tensorlang.errors import DefinitionError
from tensorlang.schedules.cpu.dots import Dots, schedule_dots
from tensorlang.schedules.recognise import Group
from tensorlang.schedules.room import Room
from tensorlang.te.program import canonical
from tensorlang.testing import check_schedule


def tensor(*shape: int, dtype: str = "float32") -> tuple[str, tuple[int, ...], str]:
    return "TENSOR", shape, dtype


def window(size: int, *rest: Any) -> tuple[Any, ...]:
    return (tensor(1, 4, 7, 7), tensor(16, 4, size, size), *rest)


CASES: list[tuple[str, tuple[Any, ...], tuple[int, ...]]] = [
    ("dense_nopack.x86", (tensor(6, 32), tensor(12, 32), None, "float32"), (4, 6, 6)),
    ("dense_nopack.x86", (tensor(6, 32), tensor(12, 32), tensor(12)), (4, 6, 6)),
    ("dense_pack.x86", (tensor(8, 32), tensor(24, 32), None, "float32"), (10, 30, 6, 4)),
    ("dense_pack.x86", (tensor(8, 32), tensor(24, 32), tensor(24)), (10, 30, 6, 4)),
    ("batch_matmul.x86", (tensor(3, 8, 32), tensor(3, 12, 32), (3, 8, 12)), (4, 6, 6)),
    ("batch_matmul.x86", (tensor(3, 32, 8), tensor(3, 32, 12), None, None, True, False), (4, 6, 6)),
    ("batch_matmul.x86", (tensor(1, 1, 4), tensor(1, 6, 4)), (1, 4, 3)),
    ("dense_nopack.x86", (tensor(1, 1), tensor(1, 1), tensor(1)), (1, 1, 1)),
    ("dense_nopack.x86", (tensor(32, 8), tensor(32, 8)), (6, 6, 4)),
    ("conv2d_NCHWc.x86", window(3, (1, 1), (1, 1, 1, 1), (1, 1), "NCHW", "NCHW", "float32"), (3, 5, 4, 2)),
    ("conv2d_NCHWc.x86", window(3, (2, 2), (0, 0), (2, 1)), (3, 5, 3, 2)),
    ("conv2d_NCHWc.x86", window(1), (3, 5, 4, 2)),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "args", "shape"), CASES)
def test_configurations_compute_what_the_program_does(name: str, args: Any, shape: tuple[int, ...]) -> None:
    task = create(name, args, "llvm -num-cores=2")
    assert task.config_space.shape == shape
    rng = np.random.default_rng(len(args))
    for index in rng.integers(0, len(task.config_space), 3):
        s, tensors = task.instantiate(task.config_space.get(int(index)))
        check_schedule(s, tensors, targets=["llvm"])


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "args", "shape"), CASES)
def test_a_plain_call_gives_a_schedule(name: str, args: Any, shape: tuple[int, ...]) -> None:
    s, tensors = find_template(name)(*args)
    assert len(s.trace.steps) > len(shape)
    check_schedule(s, tensors, targets=["llvm"])


def test_dot_products_are_scheduled_by_the_body_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its numbers are those of the knobs; a tile too large to be written out is a loop."""
    given = list[Any]()

    def noting(room: Room, group: Group, dots: Dots) -> None:
        given.append(dict(room.given))
        schedule_dots(room, group, dots)

    monkeypatch.setattr("tensorlang.autotune.templates.x86.forms.schedule_dots", noting)
    for name, args in (
        ("dense_nopack.x86", (tensor(32, 8), tensor(32, 8), tensor(32))),
        ("batch_matmul.x86", (tensor(2, 32, 8), tensor(2, 32, 8))),
    ):
        task = create(name, args, "llvm -num-cores=1")
        for y, unrolled in ((2, True), (32, False)):
            sizes = {"tile_y": y, "tile_x": 32, "tile_k": 4}
            configs = map(task.config_space.get, range(len(task.config_space)))
            chosen = next(c for c in configs if all(c[knob].size[-1] == n for knob, n in sizes.items()))
            s, tensors = task.instantiate(chosen)
            assert given[-1] == {"side_0": y, "side_1": 32, "lanes": 4}
            assert (".unroll(" in str(s.trace.to_python())) == unrolled
            check_schedule(s, tensors, targets=["llvm"])


def test_the_program_is_that_of_topi() -> None:
    data, weight = te.placeholder((1, 4, 7, 7), name="data"), te.placeholder((16, 4, 3, 3), name="weight")
    program, _ = canonical([topi.conv2d(data, weight, padding=1)])
    task = create("conv2d_NCHWc.x86", (data, weight, 1, 1), "llvm")
    assert task.workload.key == program.key
    assert task.flop == 2 * 16 * 49 * 4 * 9


def test_records_make_the_task_again() -> None:
    task = create("dense_pack.x86", CASES[2][1], "llvm")
    again = template_task(task.workload.name, task.workload.args, "llvm")
    assert isinstance(again, TemplateTask)
    assert again.workload == task.workload


def test_an_unknown_name_gets_the_nearest() -> None:
    assert set(SHIPPED) == {"batch_matmul.x86", "conv2d_NCHWc.x86", "dense_nopack.x86", "dense_pack.x86"}
    with pytest.raises(DefinitionError, match=r"no template 'dense_pck\.x86'.*dense_pack\.x86"):
        find_template("dense_pck.x86")


@pytest.mark.parametrize(
    ("name", "args", "why"),
    [
        ("dense_pack.x86", (tensor(8, 32, dtype="int8"), tensor(8, 32, dtype="int8")), "takes float32 or float64"),
        ("dense_nopack.x86", (tensor(2, 8, 32), tensor(8, 32)), r"takes an array \[m, k\]"),
        ("conv2d_NCHWc.x86", (tensor(1, 1, 7, 7, 4), tensor(2, 1, 3, 3, 4, 8)), r"takes an array \[n, c, h, w\]"),
        ("conv2d_NCHWc.x86", window(3, 1, 1, 1, "NHWC", "NHWC"), "packs NCHW data by itself"),
        ("batch_matmul.x86", (tensor(3, 8, 32), tensor(3, 12, 32), (3, 8, 8)), r"gives \(3, 8, 12\)"),
        ("dense_nopack.x86", (te.placeholder((te.var("n"), 8), name="X"), tensor(8, 8)), "of known extents"),
    ],
)
def test_other_operands_are_refused(name: str, args: Any, why: str) -> None:
    with pytest.raises(DefinitionError, match=why):
        create(name, args, "llvm")
