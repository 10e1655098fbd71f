"""Convolutions by channels, in bands of rows with those around them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

import tensorlang
from tensorlang import te, topi
from tensorlang.autotune.space.seeds import library_sketch
from tensorlang.autotune.task import task_of
from tensorlang.schedule.derive import derive
from tensorlang.schedule.explain import stage_notes
from tensorlang.target import parse
from tensorlang.te.operation import Tensor
from tests.thoroughness import draws
from tests.topi.images import given
from tests.topi.programs import Array, Given, shape_of

SIZES = st.tuples(*(st.integers(1, n) for n in (2, 20, 20, 20, 40, 40)))


def relu(tensor: Tensor) -> Tensor:
    made: Tensor = te.compute(tensor.shape, lambda *i: te.max(tensor(*i), 0), name="relu")
    return made


def block(sizes: Sequence[int], window: int, stride: int, padding: int, ends: str = "<>") -> tuple[Tensor, list[Given]]:
    """From few channels to more, over each of these by itself, and back, where an image of the result's shape is added.

    `ends`: which it has of the convolutions before ("<") and behind (">").
    """
    n, h, w, few, many, out = sizes
    shape = n, h + window, w + window
    filters, wide, back = (
        given("filters", window, window, many, 1),
        given("wide", 1, 1, few, many),
        given("back", 1, 1, many, out),
    )
    used = [given("data", *shape, few if "<" in ends else many), filters]
    stage = used[0][0]
    if "<" in ends:
        stage = relu(topi.conv2d_nhwc(stage, wide[0], 1, 0))
        used.append(wide)
    stage = relu(topi.depthwise_conv2d_nhwc(stage, filters[0], stride, padding))
    if ">" in ends:
        summed = topi.conv2d_nhwc(stage, back[0], 1, 0)
        used += [back, given("residual", *shape_of(summed))]
        residual = used[-1][0]
        stage = te.compute(summed.shape, lambda *i: summed(*i) + residual(*i), name="added")
    return stage, used


def result(schedule: te.Schedule, output: Tensor, used: Sequence[Given], target: str) -> Array:
    made = np.full(shape_of(output), 77, np.float32)
    tensorlang.build(schedule, [*(tensor for tensor, _ in used), output], target=target)(*(a for _, a in used), made)
    return made


def forms(output: Tensor, target: str = "llvm") -> list[str]:
    return [note.form for note in topi.schedule(output, target, tuned=False).forms]


@drawn(
    SIZES,
    st.sampled_from([1, 2, 3, 5]),
    st.integers(1, 3),
    st.integers(0, 2),
    st.sampled_from(["<>", "<", ">"]),
    st.integers(1, 3),
)
@settings(max_examples=draws(5, 300))
def test_as_one_after_another(
    sizes: tuple[int, ...], window: int, stride: int, padding: int, ends: str, cores: int
) -> None:
    output, used = block(sizes, window, stride, padding, ends)
    target = f"llvm -num-cores={cores}"
    wanted = result(te.create_schedule(output), output, used, target)
    np.testing.assert_array_equal(result(topi.schedule(output, target), output, used, target), wanted)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("ends", ["<>", "<", ">"])
def test_which_are_made_together(ends: str) -> None:
    output, _ = block((1, 14, 14, 16, 64, 16), 3, 1, 1, ends)
    assert forms(output) == ["bands"]
    assert "bands" not in forms(output, "cuda") and "bands" not in forms(output, "opencl")


def test_which_are_not() -> None:
    low, _ = block((1, 1, 14, 16, 64, 16), 1, 1, 0)
    assert "bands" not in forms(low)  # of rows that are no two bands
    heavy, _ = block((1, 7, 7, 512, 1024, 512), 3, 1, 1)
    assert "bands" not in forms(heavy)  # with weights that would be read from memory for each band
    data, filters = given("data", 1, 16, 16, 32), given("filters", 3, 3, 32, 1)
    read_twice = relu(topi.conv2d_nhwc(data[0], given("wide", 1, 1, 32, 32)[0], 1, 0))
    once = topi.depthwise_conv2d_nhwc(read_twice, filters[0], 1, 1)
    both = te.compute(once.shape, lambda *i: once(*i) + read_twice(*i), name="both")
    assert "bands" not in forms(both)


@pytest.mark.parametrize(
    ("high", "many", "cores", "shared"),
    [(14, 480, 2, 256), (14, 96, 3, 32), (112, 480, 2, None), (14, 120, 2, None), (14, 480, 1, None)],
)
def test_threads_share_channels_of_low_images_and_rows_of_others(
    high: int, many: int, cores: int, shared: int | None
) -> None:
    """Each channel by itself needs no rows that another thread makes, too."""
    output, used = block((1, high, high, 80, many, 1), 5, 1, 2, "<")
    made = topi.schedule(output, f"llvm -num-cores={cores}", tuned=False)
    (image,) = (note.shape for note in stage_notes(made.state, derive(made.state), {}) if note.array == "relu")
    assert int(image[-1]) == (shared or many)
    if high < 20 and many < 100:
        wanted = result(te.create_schedule(output), output, used, "llvm")
        np.testing.assert_array_equal(result(made, output, used, f"llvm -num-cores={cores}"), wanted)


def test_rows_that_two_bands_read_are_kept() -> None:
    output, _ = block((1, 28, 28, 16, 64, 16), 3, 1, 1)
    state = topi.schedule(output, "llvm -num-cores=1", tuned=False).state
    notes = [*stage_notes(state, derive(state), {})]
    assert [note.recomputed for note in notes] == [1.0] * len(notes)
    assert ("relu", ("1", "4", "31", "64"), "global") in [(note.array, note.shape, note.scope) for note in notes]


def test_the_tuner_tries_other_bands() -> None:
    output, used = block((1, 28, 28, 16, 64, 16), 3, 1, 1)
    task = task_of([*(tensor for tensor, _ in used), output], "block", (), parse("llvm -num-cores=1"))
    sketch = library_sketch(task)
    assert sketch is not None
    (band,) = (knob for name, knob in sketch.knobs.items() if name.endswith("band"))
    assert band == (1, 2, 4, 8)
