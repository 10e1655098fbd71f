"""The analytical estimate: it must put the good among the first, and know what it cannot beat."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tensorlang.autotune.model.estimate import Machine, estimate
from tensorlang.autotune.model.features import features
from tensorlang.autotune.model.judge import judge_of
from tensorlang.autotune.model.nest import Kind
from tensorlang.schedules.accesses import Access
from tensorlang.target.rates import usual_core
from tensorlang.target.spec import Target

from ..fakes import matmul_nest

MACHINE = Machine.of(Target("llvm", vector_bytes=64, vector_registers=32, caches=(49152, 1 << 20, 1 << 25)))


def _seconds(rows: object, width: object, threads: int = 1, **options: object) -> np.ndarray:
    return estimate([matmul_nest(rows, width, **options)], MACHINE, threads).seconds  # type: ignore[arg-type]


def test_nothing_is_faster_than_the_peak() -> None:
    rows, width = np.meshgrid(np.arange(1, 17), [16, 32, 48, 64])
    assert (_seconds(rows.ravel(), width.ravel()) >= 2 * 256**3 / MACHINE.flops).all()


def test_the_tiles_known_to_be_good_are_near_the_top() -> None:
    tiles = [(r, w) for r in range(1, 25) for w in (16, 32, 48, 64)]
    seconds = dict(zip(tiles, _seconds([r for r, _ in tiles], [w for _, w in tiles], size=1024), strict=True))
    fastest = min(seconds.values())
    assert max(seconds[tile] for tile in ((12, 32), (8, 48), (6, 64))) < 1.1 * fastest
    assert min(seconds[tile] for tile in ((1, 16), (2, 16), (1, 32), (16, 48), (24, 32))) > 1.5 * fastest


def test_one_tile_past_the_registers_is_a_cliff() -> None:
    fits, spills = _seconds([12, 16], [32, 32])
    assert spills > 1.2 * fits


def test_a_single_chain_does_not_fill_the_pipes() -> None:
    one, eight = _seconds([1, 8], [16, 16])
    assert one > 4 * eight


def test_unpacked_rows_in_the_same_sets_cost_time() -> None:
    assert _seconds(12, 32, size=1024, packed=False)[0] > 1.1 * _seconds(12, 32, size=1024)[0]


def test_a_sum_that_is_written_out_calls_no_loop() -> None:
    nest = matmul_nest(2, 16, size=16)
    written_out = replace(nest, loops=tuple(replace(p, kind=Kind.UNROLLED) if p.axis == "k" else p for p in nest.loops))
    calls = [estimate([n], MACHINE, 1).terms["tile calls"][0] for n in (nest, written_out)]
    assert calls[0] > 0
    assert calls[1] == 0


def test_what_a_tile_keeps_for_itself_takes_no_room_in_a_cache() -> None:
    nest = matmul_nest(12, 32, size=400)
    large = Access("T", 4, (4000, 4000), ((("i", 10),), (("j", 10),)))
    with_private, with_large = (
        estimate([replace(nest, accesses=(*nest.accesses, added))], MACHINE, 1).terms["traffic"][0]
        for added in (replace(large, private=True), large)
    )
    assert with_private == estimate([nest], MACHINE, 1).terms["traffic"][0]
    assert with_large > with_private


def test_vectors_that_lie_in_two_lines_take_two_loads() -> None:
    aligned, apart = (matmul_nest(1, 128, packed=packed) for packed in (True, False))
    seconds = [estimate([nest], MACHINE, 1).terms["arithmetic"][0] for nest in (aligned, apart)]
    assert seconds[1] > 1.5 * seconds[0]


def test_threads_share_parallel_loops_only() -> None:
    assert _seconds(12, 32, 2, threads_share=True)[0] < 0.6 * _seconds(12, 32, 1, threads_share=True)[0]
    assert _seconds(12, 32, 2)[0] == _seconds(12, 32, 1)[0]


def test_the_terms_explain_the_estimate() -> None:
    guess = estimate([matmul_nest([1, 12], [16, 32])], MACHINE, 1)
    terms = guess.terms
    assert (guess.seconds >= np.maximum(terms["arithmetic"], terms["traffic"])).all()
    assert (terms["arithmetic"] >= 0).all()


def test_the_peak_follows_the_vectors_of_the_target() -> None:
    narrow = Machine.of(Target("llvm", vector_bytes=16))
    wide = Machine.of(Target("llvm", vector_bytes=64))
    assert wide.flops == 4 * narrow.flops


def test_features_are_one_finite_row_a_candidate() -> None:
    few, many = [matmul_nest([6], [64])], [matmul_nest(np.arange(1, 101), np.full(100, 32))]
    rows = features(many, estimate(many, MACHINE, 1), MACHINE)
    assert rows.shape == (100, features(few, estimate(few, MACHINE, 1), MACHINE).shape[1])
    assert rows.dtype == np.float32
    assert np.isfinite(rows).all()
    assert len(np.unique(rows, axis=0)) == 100


def test_the_estimate_follows_what_was_measured_of_the_machine() -> None:
    target = Target("llvm", vector_bytes=64, vector_registers=32, caches=(49152, 1 << 20, 1 << 25))
    usual = usual_core(target)
    split = Machine.of(target, replace(usual, fma=1.0, loads=1.0))
    assert Machine.of(target) == Machine.of(target, usual)
    assert split.flops == MACHINE.flops / 2
    halved, whole = (estimate([matmul_nest(12, 32)], m, 1).terms["arithmetic"][0] for m in (split, MACHINE))
    assert halved == 2 * whole
    assert split.chains == MACHINE.chains / 2
    starved = Machine.of(target, replace(usual, loads=1.0))
    assert estimate([matmul_nest(1, 64)], starved, 1).seconds[0] > estimate([matmul_nest(1, 64)], MACHINE, 1).seconds[0]


def test_who_judges_takes_the_core_that_it_is_given() -> None:
    target = Target("llvm", vector_bytes=64, vector_registers=32, caches=(49152, 1 << 20, 1 << 25))
    nests = [matmul_nest(12, 32)]
    by_name = judge_of(target, 1).estimate(nests).seconds
    assert (judge_of(target, 1, replace(usual_core(target), fma=1.0)).estimate(nests).seconds > by_name).all()
