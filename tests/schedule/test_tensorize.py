"""tensorize: what it accepts, what it refuses and why, and what holds for the steps after it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tensorlang import lower, te, tir
from tensorlang.errors import BadArgument, ScheduleError
from tensorlang.schedule import Schedule
from tensorlang.schedule.trace import Trace
from tensorlang.te.intrinsic import TensorIntrin
from tensorlang.testing import check_schedule
from tensorlang.testing.tiles import intrinsic_of
from tests.intrinsics import tile_matmul
from tests.programs import Case, chain, matmul, with_extern


def tiled(s: Schedule, m: int = 4, n: int = 8, k: int = 3, tail: str = "guard") -> None:
    """The matmul C in tiles of m x n x k, tile loops innermost."""
    i_o, j_o, i_i, j_i = s["C"].tile("i", "j", m, n, tail=tail)
    k_o, k_i = s["C"].split("k", factor=k, tail=tail)
    s["C"].reorder(i_o, j_o, k_o, i_i, j_i, k_i)


def even() -> Case:
    """A matmul that tiles of 4 x 8 x 3 divide."""
    return matmul(8, 16, 6)


def test_loops_at_and_below_the_axis_become_the_intrinsic() -> None:
    s, args = even()
    tiled(s)
    s["C"].tensorize("i_i", tile_matmul(4, 8, 3))
    assert str(lower(s, list(args))).count("for i%1 in range(4)") == 2  # the reset, and the update
    check_schedule(s, args)


@pytest.mark.parametrize("n", [4, 8])
def test_factors_and_operands_may_stand_in_any_order(n: int) -> None:
    A, B = te.placeholder((6, 8), name="A"), te.placeholder((6, 16), name="B")
    r = te.reduce_axis((0, 6), "r")
    C = te.compute((16, 8), lambda x, y: te.sum(B[r, x] * A[r, y], axis=r), name="C")
    s = te.create_schedule(C.op)
    a, b = te.placeholder((n, 3), name="a"), te.placeholder((3, 4), name="b")
    k = te.reduce_axis((0, 3), "k")
    c = te.compute((n, 4), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    binds = {t: te.decl_buffer(t.shape, name=t.op.name, strides=[te.var(f"{t.op.name}0"), te.var(f"{t.op.name}1")])
             for t in (a, b)}  # fmt: skip
    binds[c] = te.decl_buffer(c.shape, name="c", strides=[1, te.var("column")])

    def statements(ins: Any, outs: Any) -> Any:
        ib = tir.ir_builder.create()
        P, Q, R = (ib.buffer_ptr(buffer) for buffer in (*ins, *outs))
        with ib.for_range(0, n) as i, ib.for_range(0, 4) as j, ib.for_range(0, 3) as t:
            R[i, j] = R[i, j] + P[i, t] * Q[t, j]
        reset = tir.ir_builder.create()
        with reset.for_range(0, n) as i, reset.for_range(0, 4) as j:
            reset.buffer_ptr(outs[0])[i, j] = 0.0
        return ib.get(), reset.get(), ib.get()

    intrin = te.decl_tensor_intrin(c.op, statements, "transposed", binds=binds)
    x_o, y_o, x_i, y_i = s[C].tile("x", "y", 4, n)
    r_o, r_i = s[C].split("r", factor=3)
    s[C].reorder(r_o, x_o, y_o, y_i, r_i, x_i)
    s[C].tensorize(y_i, intrin)
    check_schedule(s, (A, B, C))


def test_an_axis_may_be_made_of_several_loops_below() -> None:
    s, args = even()
    tiled(s)
    s["C"].split("j_i", factor=2)
    s["C"].reorder("i_i", "j_i_i", "k_i", "j_i_o")
    s["C"].tensorize("i_i", tile_matmul(4, 8, 3))
    check_schedule(s, args)


def test_remainders_of_a_peeled_split_stay_ordinary_code() -> None:
    n, m = te.var("n"), te.var("m")
    s, args = matmul(n, m, 7)
    tiled(s, tail="peel")
    s["C"].parallel("i_o")
    s["C"].tensorize("i_i", tile_matmul(4, 8, 3))
    for sizes in ({"n": 9, "m": 17}, {"n": 3, "m": 40}, {"n": 4, "m": 8}, {"n": 0, "m": 5}):
        check_schedule(s, args, sizes=sizes)


def test_a_whole_reduction_inside_runs_the_body_alone() -> None:
    s, args = matmul(8, 16, 3)
    s["C"].tile("i", "j", 4, 8)
    s["C"].tensorize("i_i", tile_matmul(4, 8, 3, variants=1))
    text = str(lower(s, list(args)))
    assert text.count("for i%1 in range(4)") == 1 and "C[4 * i_o + i%1, 8 * j_o + j%2] = 0.0" in text
    check_schedule(s, args)


def test_an_update_without_reset_adds_to_what_the_stage_started() -> None:
    s, args = even()
    whole = tile_matmul(4, 8, 3)

    def statements(ins: Any, outs: Any) -> Any:
        ib = tir.ir_builder.create()
        A, B, C = (ib.buffer_ptr(buffer) for buffer in (*ins, *outs))
        with ib.for_range(0, 4) as i, ib.for_range(0, 8) as j, ib.for_range(0, 3) as k:
            C[i, j] = C[i, j] + A[i, k] * B[k, j]
        return ib.get(), None, ib.get()

    a, b = te.placeholder((4, 3), name="a"), te.placeholder((3, 8), name="b")
    r = te.reduce_axis((0, 3), "r")
    c = te.compute((4, 8), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    tiles = dict(zip((a, b, c), whole.buffers.values()))
    intrin = te.decl_tensor_intrin(c.op, statements, "update_only", binds=tiles)
    tiled(s)
    s["C"].tensorize("i_i", intrin)
    assert "for i_i in range(4)" in str(lower(s, list(args)))
    check_schedule(s, args)


def test_tiles_of_local_arrays_have_the_strides_of_those() -> None:
    n, m = te.var("n"), te.var("m")
    s, args = matmul(n, m, 9)
    T = s.cache_write("C", "local")
    s["C"].tile("i", "j", 4, 16, tail="peel")
    s[T].compute_at(s["C"], "j_o")
    s[T].reorder("k", "i", "j")
    s[T].unroll("i")
    s[T].tensorize("j", te.intrin("fma.f32x16"))
    text = str(lower(s, list(args)))
    assert "machine fma.f32x16.update(A[4 * i_o + 1, k], B[k, 16 * j_o], C.local[1, 0])" in text
    for sizes in ({"n": 9, "m": 37}, {"n": 4, "m": 16}, {"n": 2, "m": 3}):
        check_schedule(s, args, sizes=sizes)


def test_a_trace_replays_from_json() -> None:
    s, _ = even()
    tiled(s)
    s["C"].tensorize("i_i", tile_matmul(4, 8, 3))
    assert s.trace.to_python().splitlines()[-1] == "s['C'].tensorize('i_i', te.intrin('tile_matmul_4_8_3'))"
    again = even()
    read = Trace.from_json(json.loads(json.dumps(s.trace.to_json())))
    read.apply(again.s)
    assert again.s.trace.key == s.trace.key
    check_schedule(again.s, again.args)


def test_replaying_an_intrinsic_that_is_not_declared_says_what_to_import() -> None:
    s, _ = even()
    tiled(s)
    s["C"].tensorize("i_i", tile_matmul(4, 8, 3))
    *before, step = s.trace.steps
    other, unknown = replace(step, key="0" * 16), replace(step, intrinsic="nowhere.mm")  # type: ignore[type-var]
    with pytest.raises(BadArgument, match=r"intrinsic tile_matmul_4_8_3 is declared otherwise here: its hash is "):
        Trace((*before, other)).apply(even().s)
    with pytest.raises(BadArgument, match=r"no intrinsic nowhere\.mm .* is declared in this process") as caught:
        Trace((*before, unknown)).apply(even().s)
    assert "import the module that declares nowhere.mm with te.decl_tensor_intrin, then replay" in str(caught.value)


def three_rows() -> tuple[Schedule, tuple[te.Tensor, ...]]:
    """B = 2 A in tiles of C, which adds three rows of B."""
    A = te.placeholder((34, 16), name="A")
    B = te.compute((34, 16), lambda i, j: A[i, j] * 2, name="B")
    C = te.compute((32, 16), lambda i, j: B[i, j] + B[i + 1, j] + B[i + 2, j], name="C")
    s = te.create_schedule(C.op)
    s[C].split("i", factor=8)
    s[B].compute_at(s[C], "i_o")
    return s, (A, C)


PLACED: dict[str, Callable[[Schedule], object]] = {
    "as it is": lambda s: None,
    "padded": lambda s: s["B"].storage_align("i", 32, 8),
    "rolling": lambda s: s["B"].rolling_buffer(),
    "double": lambda s: s["B"].double_buffer(),
}


@pytest.mark.covering(1)
@pytest.mark.parametrize("how", PLACED)
@pytest.mark.parametrize(("stage", "axis"), [("B", "i"), ("B", "j"), ("C", "i_i"), ("C", "j")])
def test_tiles_of_an_array_that_is_kept_otherwise(how: str, stage: str, axis: str) -> None:
    s, args = three_rows()
    PLACED[how](s)
    intrin = intrinsic_of(s, stage, axis)
    if (how, stage) == ("double", "B"):
        assert intrin is None
    elif how == "rolling" and axis != "j":
        assert intrin is not None
        with pytest.raises(BadArgument, match="B is folded along dimension 0, where a tile would wrap around"):
            s[stage].tensorize(axis, intrin)
    else:
        assert intrin is not None
        s[stage].tensorize(axis, intrin)
        check_schedule(s, args)


def test_a_stage_that_runs_ahead_is_not_tensorized() -> None:
    s, _ = three_rows()
    plain = intrinsic_of(s, "B", "j")
    assert plain is not None
    s["B"].double_buffer()
    with pytest.raises(BadArgument, match="B has a double buffer, which is filled one tile ahead"):
        s["B"].tensorize("j", plain)


def bytes_matmul(data: str, weight: str, n: int = 32, k: int = 8) -> Case:
    """C = A W with W packed as VNNI wants it."""
    A = te.placeholder((8, k), data, name="A")
    W = te.placeholder((n // 16, k // 4, 16, 4), weight, name="W")
    r = te.reduce_axis((0, k), "k")
    word = "int32"
    C = te.compute(
        (8, n),
        lambda i, j: te.sum(A[i, r].astype(word) * W[j // 16, r // 4, j % 16, r % 4].astype(word), axis=r),
        name="C",
    )
    return Case(te.create_schedule(C.op), (A, W, C))


def vnni(s: Schedule, j: int = 16, k: int = 4) -> None:
    s["C"].split("j", factor=j)
    s["C"].split("k", factor=k)
    s["C"].reorder("i", "j_o", "k_o", "j_i", "k_i")


def on_tile(intrin: Callable[[], TensorIntrin], axis: str = "i_i") -> Callable[[Schedule], None]:
    return lambda s: s["C"].tensorize(axis, intrin())


def mm433() -> TensorIntrin:
    return tile_matmul(4, 8, 3)


def compact() -> TensorIntrin:
    """A matmul of tiles without gaps between their rows."""
    a, b = te.placeholder((4, 3), name="a"), te.placeholder((3, 8), name="b")
    r = te.reduce_axis((0, 3), "r")
    c = te.compute((4, 8), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    stop = tir.call_extern("void", "nobody")
    made: TensorIntrin = te.decl_tensor_intrin(c.op, lambda ins, outs: (stop, stop, stop), "compact")
    return made


def highest() -> TensorIntrin:
    """The largest product instead of the sum."""
    a, b = te.placeholder((4, 3), name="a"), te.placeholder((3, 8), name="b")
    r = te.reduce_axis((0, 3), "r")
    c = te.compute((4, 8), lambda i, j: te.max(a[i, r] * b[r, j], axis=r), name="c")
    stop = tir.call_extern("void", "nobody")
    made: TensorIntrin = te.decl_tensor_intrin(c.op, lambda ins, outs: (stop, stop, stop), "highest")
    return made


def added() -> TensorIntrin:
    """Sums instead of products."""
    a, b = te.placeholder((4, 3), name="a"), te.placeholder((3, 8), name="b")
    r = te.reduce_axis((0, 3), "r")
    c = te.compute((4, 8), lambda i, j: te.sum(a[i, r] + b[r, j], axis=r), name="c")
    stop = tir.call_extern("void", "nobody")
    made: TensorIntrin = te.decl_tensor_intrin(c.op, lambda ins, outs: (stop, stop, stop), "added")
    return made


def squares() -> TensorIntrin:
    """One array where the stage has two."""
    a = te.placeholder((4, 3), name="a")
    r = te.reduce_axis((0, 3), "r")
    c = te.compute((4,), lambda i: te.sum(a[i, r] * a[i, r], axis=r), name="c")
    stop = tir.call_extern("void", "nobody")
    made: TensorIntrin = te.decl_tensor_intrin(c.op, lambda ins, outs: (stop, stop, stop), "squares")
    return made


def aligned(**layout: int) -> Callable[[], TensorIntrin]:
    def make() -> TensorIntrin:
        whole = tile_matmul(4, 8, 3)
        a, b = te.placeholder((4, 3), name="a"), te.placeholder((3, 8), name="b")
        r = te.reduce_axis((0, 3), "r")
        c = te.compute((4, 8), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
        tiles = {t: replace(tile, **layout) for t, tile in zip((a, b, c), whole.buffers.values())}  # type: ignore[arg-type]
        stop = tir.call_extern("void", "nobody")
        made: TensorIntrin = te.decl_tensor_intrin(c.op, lambda ins, outs: (stop, stop, stop), "aligned", binds=tiles)
        return made

    return make


REFUSED: dict[str, tuple[Callable[[], Case], tuple[Callable[[Schedule], object], ...], str, str]] = {
    "a dtype": (
        lambda: bytes_matmul("int8", "int8"), (vnni, on_tile(lambda: te.intrin("x86.avx512.vpdpbusd"), "j_i")),
        "the intrinsic multiplies uint8 by int8, the stage multiplies int8 by int8", "",
    ),
    "a smaller extent": (
        even, (lambda s: tiled(s, k=2), on_tile(mm433)),
        "reduce axis k has extent 2 below the loop, the intrinsic covers 3 (r there)", "split k by 3",
    ),
    "a loop too many": (
        even, (lambda s: s["C"].tile("i", "j", 4, 8), on_tile(lambda: te.intrin("fma.f32x8"), "i_i")),
        "axis i runs below the loop too, and the intrinsic has no axis for it", "put i outside",
    ),
    "a loop too few": (
        even, (tiled, on_tile(mm433, "k_i")),
        "the intrinsic covers 4 of axis i, and no loop below does", "put a loop of 4",
    ),
    "a symbolic extent": (
        lambda: matmul(8, 16, te.var("n")), (lambda s: s["C"].tile("i", "j", 4, 8), on_tile(mm433)),
        "axis k has the symbolic extent n below the loop", "split k by that extent with tail='peel'",
    ),
    "a tail that cuts": (
        lambda: matmul(8, 16, 7), (tiled, on_tile(mm433)),
        "the tile of i_i, j_i, k_i is not always whole", "split with tail='peel'",
    ),
    "no whole tile": (
        lambda: matmul(3, 16, 6), (lambda s: tiled(s, tail="peel"), on_tile(mm433)), "no tile is whole", "",
    ),
    "strides": (
        even, (tiled, on_tile(compact)),
        "neighbours along dimension 0 of the tile of A are 6 elements apart, the intrinsic declares 3 for a",
        "or declare a with strides=[te.var('stride'), ...]",
    ),
    "a reduction": (
        even, (tiled, on_tile(highest)), "the intrinsic reduces by max, the stage by sum", "",
    ),
    "an operation": (
        even, (tiled, on_tile(added)),
        "the intrinsic adds float32 and float32, the stage multiplies float32 by float32", "",
    ),
    "no reduction": (
        chain, (lambda s: s["C"].split("i", factor=4), on_tile(mm433)), "no loop below does", "",
    ),
    "two arrays for one": (
        lambda: matmul(8, 1, 3), (lambda s: s["C"].split("i", factor=4), lambda s: s["C"].reorder("i_o", "j", "i_i"),
                                  on_tile(squares)),
        "the tile runs through B by [k, .], the intrinsic through a by [i, r]", "",
    ),
    "no update": (
        even, (tiled, on_tile(lambda: tile_matmul(4, 8, 3, variants=1))),
        "tile_matmul_4_8_3 declares no update", "return (body, reset, update) from fcompute",
    ),
    "lanes below": (
        even, (tiled, lambda s: s["C"].vectorize("j_i"), on_tile(mm433)),
        "axis j_i is vectorized, and the intrinsic takes the place of its loop", "leave out the annotation of j_i",
    ),
    "a stage inside": (
        even,
        (tiled, lambda s: s.cache_read("A", "local", ["C"]), lambda s: s["A.local"].compute_at(s["C"], "i_i"),
         on_tile(mm433)),
        "A.local is computed inside i_i, where the intrinsic runs alone", "",
    ),
    "offsets": (
        even, (tiled, on_tile(aligned(offset_factor=16))), "begins at multiples of 3 elements", "",
    ),
    "alignment": (
        even, (tiled, on_tile(aligned(data_alignment=64))),
        "aligned to 4 bytes, the intrinsic declares data_alignment=64",
        "copy A to scratch memory (cache_read)",
    ),
    "a fused axis": (
        even,
        (lambda s: s["C"].split(s["C"].fuse("i", "j"), factor=32),
         lambda s: s["C"].reorder("i_j_fused_o", "i_j_fused_i"),
         on_tile(lambda: te.intrin("fma.f32x16"), "i_j_fused_i")),
        "no plain range of the loops there", "split instead of fusing",
    ),
    "an extern stage": (with_extern, (lambda s: s["S"].tensorize("i", mm433()),), "S is an extern stage", ""),
    "twice": (
        even, (tiled, on_tile(mm433), on_tile(mm433, "j_i")), "C runs as tile_matmul_4_8_3 from its loop i_i on", "",
    ),
    "a split of its loop": (
        even, (tiled, on_tile(mm433), lambda s: s["C"].split("i_i", factor=2)),
        "the loop i_i of C runs as tile_matmul_4_8_3, and has to stay a loop", "",
    ),
    "an inner loop put outside": (
        even, (tiled, on_tile(mm433), lambda s: s["C"].reorder("j_i", "i_i")),
        "the intrinsic covers 8 of axis j, and no loop below does", "",
    ),
    "a vector of a tensorized stage": (
        even, (tiled, on_tile(mm433), lambda s: s["C"].unroll("k_i")), "axis k_i is unrolled", "",
    ),
    "a cache that changes the stage": (
        even, (tiled, on_tile(mm433), lambda s: s["A.local"].compute_at(s["C"], "j_i")), "no stage 'A.local'", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_mismatch_names_what_differs(name: str) -> None:
    make, (*before, step), why, legal = REFUSED[name]
    s = make().s
    for action in before:
        action(s)
    state, trace = s.state, s.trace
    with pytest.raises(ScheduleError) as caught:
        step(s)
    assert isinstance(caught.value, BadArgument), caught.value
    assert why in caught.value.why, caught.value
    assert any(legal in text for text in (*caught.value.legal, *caught.value.advice)) or not legal, caught.value
    assert s.state is state and s.trace is trace
    assert caught.value.where is not None


def test_a_strict_schedule_keeps_the_order_of_float_sums() -> None:
    s, _ = matmul(8, 16, 3)
    s.strict()
    s["C"].tile("i", "j", 4, 8)
    with pytest.raises(BadArgument, match="adds the floats of its tile in an order of its own"):
        s["C"].tensorize("i_i", tile_matmul(4, 8, 3))
    whole, args = matmul(8, 16, 3, "int32")
    whole.strict()
    whole["C"].tile("i", "j", 4, 8)
    whole["C"].tensorize("i_i", tile_matmul(4, 8, 3, "int32"))
    check_schedule(whole, args)
