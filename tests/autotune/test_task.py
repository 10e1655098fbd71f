"""Tasks: what can be tuned, by name, from a user's file, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tensorlang import topi
from tensorlang.autotune.task import arguments_of, create_task, operator_of, task_of
from tensorlang.errors import DefinitionError, TargetError

OPERATORS = str(Path(__file__).with_name("operators.py"))


def test_a_library_operator_by_name() -> None:
    task = create_task("matmul", (4, 5, 6, "float64"), threads=1)
    assert str(task.workload) == "matmul(4, 5, 6, float64)"
    assert task.workload.arguments == ("A: float64[4, 6]", "B: float64[6, 5]", "C: float64[4, 5]")
    assert task.workload.flops == 2 * 4 * 5 * 6
    assert ([t.name for t in task.inputs], [t.name for t in task.outputs]) == (["A", "B"], ["C"])
    assert (task.threads, task.target.cores) == (1, 1)


def test_a_name_alone_makes_no_library_operator() -> None:
    task = create_task("matmul", (4, 5, 6), threads=1)
    assert operator_of(task) is topi.OPERATORS["matmul"]
    other = create_task("softmax", (4, 6), threads=1)
    assert operator_of(task_of(other.tensors, "matmul", task.workload.args)) is None
    assert operator_of(task_of(task.tensors, "matmul")) is None


def test_a_users_function_by_path() -> None:
    task = create_task(f"{OPERATORS}:max_of_min", (3, 4, 5, "int32"))
    assert task.workload.dtype == "int32"
    assert task.workload.flops == 2 * 3 * 4 * 5


def test_equal_programs_have_equal_keys_whatever_their_names() -> None:
    named = create_task("matmul", (4, 5, 6))
    assert task_of(named.tensors).workload.key == named.workload.key
    assert create_task("matmul", (4, 5, 7)).workload.key != named.workload.key


@pytest.mark.parametrize(
    ("function", "args", "operations"),
    [
        ("transpose", (10, 20), 200),  # moves data: elements written
        ("softmax", (8, 10), 8 * 10 * 5),
        ("total", (100,), 100),
        ("rows_by_index", (10, 8, 5), 5 * 8),
        ("convolve_and_clip", (2, 4, 3), 2 * 2 * 9 * 3 * 16 + 3 * 16),
    ],
)
def test_operations_are_counted_without_index_arithmetic(
    function: str, args: tuple[int, ...], operations: float
) -> None:
    counted = create_task(f"{OPERATORS}:{function}", args).workload.flops
    padding = 2 * 6 * 6 * 10 if function == "convolve_and_clip" else 0  # its conditions are computed, per element
    assert operations <= counted <= operations + padding


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("matmull", (4, 4, 4), "unknown operator 'matmull'; did you mean matmul"),
        ("frobnicate", (), "known: .*matmul"),
        ("matmul", (4, 4), "wants the shape M,N,K as positive integers, got 4,4"),
        ("matmul", (4, 0, 4), "positive integers, got 4,0,4"),
        ("matmul", (4, 4, 4, "floot32"), "unknown dtype 'floot32'"),
        ("matmul", (4, 4, 4, "float32", "x"), "integer sizes and one dtype"),
        ("nowhere.py:f", (), "no such file: nowhere.py"),
        (OPERATORS, (), "write path/to/file.py:function"),
        (f"{OPERATORS}:maxx_of_min", (), "no function 'maxx_of_min'; it has: .*max_of_min"),
        (f"{OPERATORS}:no_list", (3,), "must return a list of tensors"),
        (f"{OPERATORS}:symbolic", (), re.escape("symbolic sizes (n)")),
        (f"{OPERATORS}:forgets_an_input", (3,), "reads A but does not return it"),
        (f"{OPERATORS}:fails", (3,), "failed: ZeroDivisionError"),
        (f"{OPERATORS}:max_of_min", (3,), "failed: TypeError"),
    ],
)
def test_what_cannot_be_a_task_is_refused(name: str, args: tuple[int | str, ...], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        create_task(name, args)


def test_a_tensor_is_one_argument() -> None:
    A, B, C = topi.operator("matmul").tensors((4, 4, 4), "float32")
    with pytest.raises(DefinitionError, match="program returned A twice"):
        task_of([A, A, B, C])
    with pytest.raises(DefinitionError, match="program returned C twice"):
        task_of([A, B, C, C])


def test_a_file_that_does_not_import_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("import nothing_of_that_name\n")
    with pytest.raises(DefinitionError, match=r"broken\.py cannot be imported: ModuleNotFoundError"):
        create_task(f"{path}:f", ())


def test_targets_are_checked() -> None:
    with pytest.raises(TargetError, match="unknown target kind"):
        create_task("matmul", (4, 4, 4), target="abacus")
    with pytest.raises(DefinitionError, match="at least 1, got 0"):
        create_task("matmul", (4, 4, 4), threads=0)


def test_updates_take_the_place_of_their_inputs() -> None:
    task = create_task(f"{OPERATORS}:smooth_to_and_fro", (10, 3), threads=1)
    assert task.in_place == (0, 1)
    assert [t.name for t in arguments_of(task.tensors)] == ["A", "B"]
    assert task.workload.flops == 2 * 3 * 8 * 3
    plain = create_task("matmul", (4, 5, 6))
    assert plain.in_place == (-1,)
    assert arguments_of(plain.tensors) == list(plain.tensors)


def test_an_operator_takes_options() -> None:
    sizes = (1, 4, 9, 9, 6, 3)
    plain = create_task("conv2d", sizes, threads=1)
    assert plain.workload.args == (*sizes, "float32")
    task = create_task("conv2d", (*sizes, "groups=2", "int8", "stride=2,1", "padding=SAME"), threads=1)
    assert task.workload.args == (
        *sizes,
        "int8",
        "stride=(2, 1)",
        "groups=2",
    )  # as the table has them, usual ones left out
    assert str(task.workload) == "conv2d(1, 4, 9, 9, 6, 3, int8, stride=(2, 1), groups=2)"
    assert task.workload.arguments == ("data: int8[1, 4, 9, 9]", "weight: int8[6, 2, 3, 3]", "conv2d: int8[1, 6, 5, 9]")
    again = create_task(task.workload.name, task.workload.args, threads=1)
    assert again.workload == task.workload
    assert create_task("conv2d", (*sizes, "stride=1", "padding=SAME")).workload == plain.workload
    operator = operator_of(task)
    assert operator is not None
    data, weight = np.ones((1, 4, 9, 9), np.int8), np.ones((6, 2, 3, 3), np.int8)
    (made,) = operator.reference(data, weight)
    assert made.shape == (1, 6, 5, 9)
    assert operator_of(task_of(plain.tensors, "conv2d", task.workload.args)) is None


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [
        (
            "conv2d",
            "strides=2",
            "conv2d has no option 'strides'; did you mean stride? It has stride=1, padding=SAME, dil",
        ),
        ("conv2d", "=2", "conv2d has no option ''; it has stride=1"),
        ("dense", "stride=2", "dense has no option 'stride'; it takes none"),
        ("depthwise_conv2d", "stride=(1,2,3)", "stride is a whole number, or one for height"),
        ("max_pool2d", "kernel=", "a whole number or a sequence of whole numbers for kernel, got"),
    ],
)
def test_options_that_an_operator_does_not_have(name: str, option: str, message: str) -> None:
    sizes = (4,) * len(topi.operator(name).sizes)
    with pytest.raises(DefinitionError, match=re.escape(message)):
        create_task(name, (*sizes, "float32", option))
    with pytest.raises(DefinitionError, match="was given its option stride twice"):
        create_task("conv2d", (4,) * 6 + ("stride=1", "stride=2"))
