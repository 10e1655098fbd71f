"""Spaces: index arithmetic as in AutoTVM, JSON of its logs, clear words on knobs without candidates."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorlang import te
from tensorlang.autotune import AnnotateEntity, ConfigEntity, ConfigSpace, SplitEntity
from tensorlang.autotune.templates.entity import entity_from_json
from tensorlang.errors import DefinitionError, RecordError

AUTOTVM_CONFIGS = [
    '{"index": 1996, "code_hash": null, "entity": [["tile_y", "sp", [-1, 128]], ["tile_x", "sp", [-1, 32]], '
    '["tile_k", "sp", [-1, 64]], ["ann", "an", ["vec"]], ["auto_unroll_max_step", "ot", 0]]}',
    '{"index": 2591, "code_hash": null, "entity": [["tile_y", "sp", [-1, 256]], ["tile_x", "sp", [-1, 256]], '
    '["tile_k", "sp", [-1, 16]], ["ann", "an", ["none"]], ["auto_unroll_max_step", "ot", 16]]}',
]
"""Configurations that AutoTVM 0.2 has logged, of a space like `matmul_space`."""


def matmul_space() -> ConfigSpace:
    cfg = ConfigSpace()
    for name in ("tile_y", "tile_x", "tile_k"):
        cfg.define_split(name, 256, num_outputs=2)
    cfg.define_annotate("ann", [cfg.axis(256)], policy="try_unroll_vec")
    cfg.define_knob("auto_unroll_max_step", [0, 16, 64])
    return cfg


@pytest.mark.parametrize("text", AUTOTVM_CONFIGS)
def test_an_index_means_what_it_means_in_autotvm(text: str) -> None:
    logged, space = json.loads(text), matmul_space()
    assert len(space) == 9**3 * 9
    assert space.get(logged["index"]).to_json_dict() == logged
    assert ConfigEntity.from_json_dict(logged) == space.get(logged["index"])


@given(st.integers(0, 6560))
def test_numbers_and_digits_are_each_others_inverse(index: int) -> None:
    space = matmul_space()
    digits = space.digits(index)
    assert space.number(list(digits.values())) == index
    assert all(space.get(index)[name] == space.space_map[name][digit] for name, digit in digits.items())


def test_a_space_of_more_points_than_a_machine_word() -> None:
    cfg = ConfigSpace()
    for n in range(8):
        cfg.define_reorder(f"order{n}", [cfg.axis(k + 2) for k in range(12)], policy="all")
    assert cfg.size == 479001600**8
    last = cfg.get(cfg.size - 1)
    assert last["order7"].perm == list(range(12))[::-1]
    assert cfg.number(list(cfg.digits(cfg.size - 2).values())) == cfg.size - 2
    rows = cfg.sample(np.random.default_rng(0), 5)
    assert cfg.features(rows).shape == (5, 8 * 12)


def test_there_is_no_configuration_beyond_the_last() -> None:
    with pytest.raises(IndexError, match="6561 configurations, there is none of number 6561"):
        matmul_space().get(6561)


def test_features_tell_candidates_apart() -> None:
    space = matmul_space()
    rows = space.features(space.sample(np.random.default_rng(1), 200))
    assert rows.dtype == np.float32
    assert np.isfinite(rows).all()
    every = np.stack(np.unravel_index(np.arange(81), (9, 9)), axis=1)
    digits = np.concatenate([every, np.zeros((81, 3), np.int64)], axis=1)
    assert len(np.unique(space.features(digits), axis=0)) == 81


def test_a_knob_of_several_kinds_of_values_is_told_by_number() -> None:
    cfg = ConfigSpace()
    cfg.define_knob("mixed", [1, "two", None])
    assert cfg.features(np.asarray([[0], [1], [2]])).tolist() == [[0.0], [1.0], [2.0]]


def test_filters_and_limits_that_leave_nothing_are_named() -> None:
    def nothing(entity: SplitEntity) -> bool:
        return entity.size[-1] > 64

    cfg = ConfigSpace()
    with pytest.raises(DefinitionError, match=r"define_split\('a'\) has no candidate: its filter keeps none of the 2"):
        cfg.define_split("a", 13, num_outputs=2, filter=nothing)
    with pytest.raises(DefinitionError, match=r"there is none by policy 'factors' with max_factor=0, no_tail=None"):
        cfg.define_split("b", 13, num_outputs=2, max_factor=0)
    with pytest.raises(DefinitionError, match=r"knob 'c' \(knob of \[\]\) has no candidate"):
        cfg.define_knob("c", [])


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda c: c.define_split("x", 8, policy="halves", num_outputs=2), r"no policy 'halves'; "),
        (lambda c: c.define_split("x", 8, num_outputs=0), "needs num_outputs of at least 1, got 0"),
        (lambda c: c.define_split("x", te.var("n"), num_outputs=2), "is an axis of te or its extent, got"),
        (lambda c: c.define_split("x", c.axis(8), "candidate", num_outputs=2, candidate=[[2, 2, 2]]), "2 sizes, got"),
        (lambda c: c.define_reorder("x", [c.axis(2)], "sorted"), r"define_reorder\('x'\) has no policy 'sorted'"),
        (lambda c: c.define_reorder("x", [c.axis(2)], "candidate", candidate=[[c.axis(3)]]), "not among its axes"),
        (lambda c: (c.define_knob("x", [1]), c.define_knob("x", [2])), "there is a knob 'x' already: knob of"),
        (lambda c: c["missing"], "no knob 'missing' is defined"),
    ],
)
def test_definitions_that_make_no_sense(define: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        define(ConfigSpace())


def test_an_axis_without_an_extent_needs_candidates() -> None:
    A = te.placeholder((te.var("n"),), name="A")
    B = te.compute(A.shape, lambda i: A[i], name="B")
    cfg = ConfigSpace()
    with pytest.raises(DefinitionError, match=r"needs an axis of known extent, got i; give the extent itself"):
        cfg.define_split("tile", B.op.axis[0], num_outputs=2)
    cfg.define_split("listed", B.op.axis[0], policy="candidate", num_outputs=2, candidate=[[-1, 4], [-1, 8]])
    assert [cfg.get(n)["listed"].size for n in range(2)] == [[-1, 4], [-1, 8]]


def test_parts_of_a_split_are_axes_of_other_knobs() -> None:
    cfg = ConfigSpace()
    yo, yi = cfg.define_split("tile_y", 16, num_outputs=2)
    ko, ki = cfg.define_split("tile_k", cfg.reduce_axis(8), num_outputs=2)
    cfg.define_reorder("order", [yo, ko, yi, ki], policy="candidate", candidate=[[yo, ko, ki, yi]])
    cfg.define_reorder("between", [yo, ko, yi, ki], policy="interval_all", interval=(1, 3))
    cfg.define_annotate("at", [yo, yi], policy="locate_cache", num_anchor=1)
    assert cfg["order"].perm == [0, 1, 3, 2]
    assert [cfg.space_map["between"][n].to_json() for n in range(2)] == [[0, 1, 2, 3], [0, 2, 1, 3]]
    assert [cfg.space_map["at"][n].to_json() for n in range(2)] == [[0], [1]]


def test_json_that_is_no_configuration_is_refused() -> None:
    for data in ({}, {"index": 1, "entity": [["a", "sp"]]}, {"index": "x", "entity": []}):
        with pytest.raises(RecordError, match="a configuration has 'index' and 'entity'"):
            ConfigEntity.from_json_dict(data)
    for kind, value in (("xx", []), ("sp", ["a"]), ("an", ["jump"]), ("re", 3)):
        with pytest.raises(RecordError, match=f"no knob is written as \\['{kind}'"):
            entity_from_json(kind, value)


def test_annotations_that_do_not_fit_are_refused_by_the_template() -> None:
    A = te.placeholder((64, 64), name="A")
    B = te.compute((64, 64), lambda i, j: A[i, j] * 2.0, name="B")
    s = te.create_schedule(B.op)
    cfg = ConfigEntity(0, {})
    words = AnnotateEntity(["unroll", "vec"])
    words.apply(s, B, s[B].op.axis, axis_lens=[64, 64], max_unroll=16, vec_size=[8], cfg=cfg)
    assert cfg.errors == [
        "axis i of 64 iterations is unrolled; max_unroll is 16",
        "axis j of 64 iterations is vectorized; vec_size is [8]",
    ]
    assert not cfg.valid()


def test_annotations_bind_fuse_and_place() -> None:
    A = te.placeholder((8, 8, 8), name="A")
    B = te.compute((8, 8, 8), lambda i, j, k: A[i, j, k] * 2.0, name="B")
    s = te.create_schedule(B.op)
    made = AnnotateEntity(["fuse", "blockIdx.x", "threadIdx.x"]).apply(s, B, s[B].op.axis)
    assert [str(a) for a in s[B].leaf_iter_vars] == [str(made[1]), str(made[2])]
    other = te.create_schedule(B.op)
    copy = other.cache_read(A, "local", [B])
    AnnotateEntity([1]).apply(other, B, other[B].op.axis, source=[[copy]])
    assert "compute_at" in str(other)
