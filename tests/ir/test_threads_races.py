"""What the device interpreter finds: races, unwritten memory, barriers that some miss, indices outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from tensorlang.errors import InternalError
from tensorlang.ir.construct import StmtLike, array, index, indices, kernel, load, loop, store
from tensorlang.ir.device import races as detector
from tensorlang.ir.expr import Var, binary
from tensorlang.ir.printer import stmt_text
from tensorlang.ir.stmt import (
    INDEX,
    Allocate,
    AtomicUpdate,
    Barrier,
    CallMachine,
    Combiner,
    If,
    Launch,
    MachineCode,
    Seq,
    Stmt,
    ThreadReduce,
)
from tensorlang.ir.threads import run
from tests.launches import BX, TX, TY, device_kernel, launched

A = array("A", (64,), INDEX)
OUT = array("out", (64,), INDEX)
TILE = array("tile", (64,), INDEX, "shared")
OWN = array("own", (2,), INDEX, "local")
i, j = indices("i j")
FILL = store(TILE, TX, load(A, TX))
TURN = store(OUT, TX, load(TILE, index(63) - TX))
WARP = Barrier("warp")


def result(
    body: StmtLike, threads: Sequence[int] = (64,), blocks: Sequence[int] = (1,), check: bool = True
) -> list[int]:
    """The array `out` that code leaves."""
    out = np.zeros(64, np.int64)
    code = launched([A, OUT], "A out", body, threads, blocks, [TILE, OWN])
    run(code, {"A": np.arange(64), "out": out}, check=check)
    return list(out.tolist())


def fault(body: StmtLike, threads: Sequence[int] = (64,), blocks: Sequence[int] = (1,)) -> str:
    """What is said of code that is wrong, less what all messages share."""
    with pytest.raises(InternalError) as error:
        result(body, threads, blocks)
    return str(error.value).partition("kernel threads: ")[2]


def test_a_barrier_joins_a_write_and_a_read() -> None:
    assert result([FILL, Barrier(), TURN]) == list(range(63, -1, -1))


def test_a_read_of_what_another_thread_wrote_names_both() -> None:
    assert fault([FILL, TURN]) == (
        "thread (63, 0, 0) writes tile[63] and thread (0, 0, 0) reads it, both of block (0, 0, 0), with no barrier "
        "between\n    tile[threadIdx.x] = A[threadIdx.x]\n    out[threadIdx.x] = tile[63 - threadIdx.x]"
    )
    assert result([FILL, TURN], check=False) == list(range(63, -1, -1))


def test_a_write_over_what_another_thread_read_names_both() -> None:
    again = store(TILE, TX, 0)
    found = fault([FILL, Barrier(), TURN, again], blocks=(1, 3))
    assert found.startswith("thread (63, 0, 0) writes tile[63] and thread (0, 0, 0) reads it, both of block (0, 0, 0)")
    assert found.endswith("tile[threadIdx.x] = 0\n    out[threadIdx.x] = tile[63 - threadIdx.x]")


def test_threads_are_named_along_all_axes() -> None:
    at = TY * index(8) + TX
    body: list[Stmt] = [store(TILE, at, at), store(OUT, at, load(TILE, index(63) - at))]
    assert fault(body, (8, 8)).startswith("thread (7, 7, 0) writes tile[63] and thread (0, 0, 0) reads it")


def test_own_elements_need_no_barrier() -> None:
    assert result([FILL, store(TILE, TX, load(TILE, TX) + 1), store(OUT, TX, load(TILE, TX))]) == list(range(1, 65))


def test_two_lanes_of_one_store_hit_one_element() -> None:
    found = fault(store(OUT, binary("floordiv", TX, index(2)), 7))
    assert found.startswith("thread (1, 0, 0) writes out[0] and thread (0, 0, 0) writes it")
    assert found.count("\n") == 1
    assert "writes out[5]" in fault(store(OUT, 5, 7))
    assert result(If(TX.equal(3), store(OUT, 5, 7)))[5] == 7


def test_blocks_share_no_element_that_one_writes() -> None:
    found = fault(store(OUT, TX, BX), (8,), (3, 2))
    assert found.startswith("thread (0, 0, 0) of block (0, 0, 0) writes out[0] and thread (0, 0, 0) of block (1, 0, 0)")
    assert "writes it; blocks run in any order" in found
    body: list[Stmt] = [store(OUT, BX * index(8) + TX, 1), store(A, BX, load(OUT, TX))]
    assert "reads it; blocks run in any order" in fault(If(TX.equal(0), Seq(tuple(body))), (8,), (3,))
    shared = store(OUT, BX * index(8) + TX, load(A, TX))
    assert result(shared, (8,), (8,)) == 8 * list(range(8))


def test_launches_come_one_after_the_other() -> None:
    first, second = (device_kernel([A], store(A, at, load(A, at) + 1), (64,)) for at in (TX, index(63) - TX))
    values = np.arange(64)
    run(kernel("host", [A], "A", [Launch(first, ()), Launch(second, ())]), {"A": values})
    assert values.tolist() == list(range(2, 66))


PAIR = array("pair", (2, 64), INDEX, "shared")


@pytest.mark.parametrize("planes", [2, 1])
def test_two_planes_need_one_barrier_a_step(planes: int) -> None:
    plane = binary("floormod", i, index(planes))
    step: list[Stmt] = [
        store(PAIR, (plane, TX), load(A, TX) + i),
        Barrier(),
        store(OUT, TX, load(OUT, TX) + load(PAIR, plane, index(63) - TX)),
    ]
    out = np.zeros(64, np.int64)
    code = launched([A, OUT], "out", loop(i, 0, 4, step), (64,), scratch=[PAIR])
    if planes == 1:
        with pytest.raises(InternalError, match=r"writes pair\[0, 63\] and thread \(0, 0, 0\) reads it"):
            run(code, {"A": np.arange(64), "out": out})
        return
    run(code, {"A": np.arange(64), "out": out})
    assert out.tolist() == [4 * (63 - x) + 6 for x in range(64)]


def test_all_threads_come_to_a_barrier() -> None:
    apart = "does not come to a barrier where others of its block wait"
    assert fault(If(TX < 40, Barrier())).startswith(f"thread (40, 0, 0) of block (0, 0, 0) {apart}")
    assert apart in fault(loop(i, 0, TX, Barrier()))
    assert apart in fault(If(TX < 32, Barrier()))
    assert fault(If(TX.equal(40), store(OUT, TX, 1), Barrier())).startswith("thread (40, 0, 0)")
    assert result([If(TX < 64, Barrier()), loop(i, TX, TX + 2, Barrier()), store(OUT, TX, 1)]) == [1] * 64


def test_whole_warps_come_to_their_barrier() -> None:
    assert result([If(TX >= 32, WARP), store(OUT, TX, 1)]) == [1] * 64
    found = fault(If(TX < 40, WARP))
    assert found.startswith("thread (40, 0, 0) of block (0, 0, 0) does not come to a barrier where others of its warp")


@pytest.mark.parametrize("most", [1 << 20, 0])
def test_one_of_many_readers_writes(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detector, "_MOST", most)
    body: list[Stmt] = [
        If(TX.equal(0), FILL),
        Barrier(),
        store(OUT, TX, load(TILE, 0)),
        If(TX.equal(63), store(TILE, 0, TX)),
    ]
    found = fault(body)
    assert "thread (63, 0, 0) writes" in found
    assert ("reads it" if most else "reads tile[0]") in found


def test_a_warp_barrier_joins_threads_of_a_warp_only() -> None:
    flipped = TX + 1 - binary("floormod", TX, index(2)) * 2
    assert result([FILL, WARP, store(OUT, TX, load(TILE, flipped))])[:4] == [1, 0, 3, 2]
    assert fault([FILL, WARP, TURN]).startswith("thread (63, 0, 0) writes tile[63] and thread (0, 0, 0) reads it")
    assert result([FILL, WARP, Barrier(), TURN])[0] == 63
    lower, use = If(TX < 32, WARP), store(OUT, TX, load(TILE, flipped))
    assert fault([FILL, lower, use]).startswith("thread (33, 0, 0) writes tile[33] and thread (32, 0, 0) reads it")
    assert result([FILL, lower, If(TX < 32, use)])[:2] == [1, 0]


def test_shared_memory_is_unwritten_at_first_in_each_block() -> None:
    unwritten = "thread (0, 0, 0) of block (0, 0, 0) reads tile[63] in shared memory before it is written"
    assert fault(TURN).startswith(unwritten)
    only_first: list[Stmt] = [If(BX.equal(0), FILL), Barrier(), If(TX.equal(5), store(OUT, BX, load(TILE, TX)))]
    found = fault(only_first, blocks=(2,))
    assert found.startswith("thread (5, 0, 0) of block (1, 0, 0) reads tile[5] in shared memory before")
    assert result(only_first, blocks=(2,), check=False)[:2] == [5, -0x5A5A5A5A5A5A5A5B]
    assert "before it is written" in fault(AtomicUpdate(TILE, (TX,), "add", index(1)))


def test_own_arrays_are_unwritten_whenever_they_are_allocated() -> None:
    keep = store(OUT, TX, load(OWN, 1))
    half: list[Stmt] = [If(TX < 32, store(OWN, 1, TX)), keep]
    assert fault(half).startswith("thread (32, 0, 0) of block (0, 0, 0) reads own[1] in local memory before")
    assert "reads own[1] in local memory" in fault([store(OWN, 0, TX), keep])
    inner = array("inner", (2,), INDEX, "local")
    at = binary("floormod", TX, index(2))
    body: list[Stmt] = [If(i.equal(0), store(inner, at, TX)), store(OUT, TX, load(inner, at))]
    assert result(loop(i, 0, 1, Allocate(inner, Seq(tuple(body))))) == list(range(64))
    assert "reads inner[0]" in fault(loop(i, 0, 2, Allocate(inner, Seq(tuple(body)))))
    assert "reads inner[1]" in fault(Allocate(inner, Seq((store(inner, at, 0), store(OUT, TX, load(inner, 1 - at))))))
    assert "reads inner[0]" in fault(Allocate(inner, AtomicUpdate(inner, (index(0),), "add", index(1))))


def test_scratch_of_the_host_is_unwritten_until_a_launch_writes_it() -> None:
    middle = array("middle", (64,), INDEX)
    half, all_of_it = (device_kernel([A, middle], store(middle, TX, load(A, TX)), (count,)) for count in (32, 64))
    use = device_kernel([middle, OUT], store(OUT, TX, load(middle, TX)), (64,))
    arrays = {"A": np.arange(64), "out": np.zeros(64, np.int64)}
    for first in (all_of_it, half):
        body = Allocate(middle, Seq((Launch(first, ()), Launch(use, ()))))
        code = kernel("host", [A, OUT], "out", body)
        if first is all_of_it:
            run(code, arrays)
            assert arrays["out"].tolist() == list(range(64))
            continue
        run(code, arrays, blocks="ends")
        with pytest.raises(InternalError, match=r"\(32, 0, 0\).* reads middle\[32\] in global memory before"):
            run(code, arrays)


@pytest.mark.parametrize("check", [True, False])
def test_indices_stay_inside(check: bool) -> None:
    wide = array("wide", (4, 16), INDEX, "shared")
    wrong: list[tuple[Stmt, str]] = [
        (
            store(OUT, TX + 1, 0),
            r"\(63, 0, 0\) of block \(0, 0, 0\) goes to out\[64\], outside its shape \(64,\)\n.*= 0",
        ),
        (store(OUT, TX, load(A, TX - 1)), r"\(0, 0, 0\) .* goes to A\[-1\]"),
        (store(wide, (0, TX), 0), r"\(16, 0, 0\) .* goes to wide\[0, 16\], outside its shape \(4, 16\)"),
        (If(TX > 40, store(OUT, TX * 2 - index(40), 0)), r"\(52, 0, 0\) .* goes to out\[64\]"),
        (store(OUT, TX, load(A, 64)), r"goes to A\[64\]"),
        (store(OWN, 2, 0), r"goes to own\[2\]"),
    ]
    for body, message in wrong:
        code = launched([A, OUT], "A out", body, (64,), scratch=[wide, OWN])
        with pytest.raises(InternalError, match=message):
            run(code, {"A": np.arange(64), "out": np.zeros(64, np.int64)}, check=check)
    assert result(If(TX < 63, store(OUT, TX + 1, TX)))[63] == 62


def test_atomic_updates_race_with_others_only() -> None:
    count = AtomicUpdate(OUT, (index(3),), "add", index(1))
    assert result(count, blocks=(3,))[3] == 192
    assert "updates out[3] and thread (0, 0, 0) reads it" in fault([count, store(A, TX, load(OUT, 3))])
    assert "writes out[3] and thread (0, 0, 0) updates it" in fault([store(OUT, TX, 0), count])
    assert "updates it; blocks run" in fault([If(BX.equal(0), If(TX.equal(3), store(OUT, 3, 1))), Barrier(), count],
                                             blocks=(2,))  # fmt: skip


def total(where: Any) -> ThreadReduce:
    """The sum of all numbers of threads."""
    p, q = indices("p q")
    return ThreadReduce(
        ((where, (index(0),)),), (TX,), Combiner((p,), (q,), (p + q,), (index(0),)), (("threadIdx.x", 64),)
    )


def test_a_shared_total_needs_a_barrier() -> None:
    begin, use = If(TX.equal(0), store(TILE, 0, 0)), store(OUT, TX, load(TILE, 0))
    assert result([begin, total(TILE), Barrier(), use]) == [63 * 32] * 64
    assert fault([begin, total(TILE), use]).startswith("thread (0, 0, 0) writes tile[0] and thread (1, 0, 0) reads it")
    assert result([store(OWN, 0, TX), total(OWN), store(OUT, TX, load(OWN, 0))]) == [63 * 32 + x for x in range(64)]


def test_all_threads_come_to_a_reduction() -> None:
    found = fault([store(OWN, 0, 0), If(TX < 40, total(OWN))])
    assert found.startswith("thread (40, 0, 0) of block (0, 0, 0) does not come to a reduction across threads")


def test_the_first_thread_of_a_warp_calls_machine_code() -> None:
    meaning = loop(i, 0, 32, store(OUT, binary("floordiv", TX, index(32)) * index(32) + i, TX + i))
    call = CallMachine(MachineCode("iota", (), meaning), (), meaning)
    assert result(call) == list(range(64))
    assert "a part of a warp calls iota" in fault(If(TX < 40, call))
    assert result(If(TX < 32, call)) == [*range(32), *[0] * 32]


Access = tuple[str, int, int]  # what, which thread, which element
_THREADS = (0, 1, 32, 33)


@st.composite
def accesses(draw: st.DrawFn) -> list[Access]:
    """A few accesses of four threads of two warps to two elements, and barriers of them."""
    kinds = draw(st.sampled_from([("read", "write"), ("read", "read", "read", "write", "update")]))
    barriers = draw(st.sampled_from([("block",), ("block", "warp", "warps", "warps"), ("warp",)]))
    one = st.tuples(st.sampled_from(kinds), st.sampled_from(_THREADS), st.integers(0, 1))
    wait = st.tuples(st.sampled_from(barriers), st.sampled_from(_THREADS), st.just(0))
    return draw(st.lists(st.one_of(one, one, one, wait), max_size=12))


def statement(access: Access) -> Stmt:
    """An access by one thread, or a barrier: of the block, of the thread's warp, or of each warp."""
    what, thread, element = access
    match what:
        case "block":
            return Barrier()
        case "warp":
            return If(TX < 32 if thread < 32 else TX >= 32, WARP)
        case "warps":
            return WARP
        case "read":
            return If(TX.equal(thread), store(OWN, 0, load(A, element)))
        case "write":
            return If(TX.equal(thread), store(A, element, 1))
    return If(TX.equal(thread), AtomicUpdate(A, (index(element),), "add", index(1)))


def races(sequence: Sequence[Access]) -> bool:
    """Whether two accesses race, by looking at every pair of them."""
    for n, (what, thread, element) in enumerate(sequence):
        for m in range(n):
            before, other, place = sequence[m]
            harmless = {what, before} in ({"read"}, {"update"}) or thread == other or place != element
            if harmless or not {what, before} <= {"read", "write", "update"}:
                continue
            one_warp = thread // 32 == other // 32
            joined = any(
                kind == "block" or (one_warp and (kind == "warps" or (kind == "warp" and by // 32 == thread // 32)))
                for kind, by, _ in sequence[m + 1 : n]
            )
            if not joined:
                return True
    return False


@settings(max_examples=2 * settings().max_examples)
@given(accesses())
def test_all_races_are_found_and_no_others(sequence: list[Access]) -> None:
    """Whether accesses are looked at when an epoch ends, or one by one."""
    body = Seq((*map(statement, sequence), store(OUT, TX, 0)))
    note(stmt_text(body))
    code = launched([A, OUT], "A out", body, (64,), scratch=[OWN])
    arrays = {"A": np.zeros(64, np.int64), "out": np.zeros(64, np.int64)}
    for most in (1 << 20, 0):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(detector, "_MOST", most)
            if races(sequence):
                with pytest.raises(InternalError, match="with no barrier between"):
                    run(code, arrays)
            else:
                run(code, arrays)


@given(
    st.lists(st.tuples(st.sampled_from(["read", "write", "update"]), st.integers(0, 3), st.integers(0, 1)), max_size=6)
)
def test_all_races_of_blocks_are_found_and_no_others(sequence: list[Access]) -> None:
    """`thread` is the number of a block here; the blocks have one thread, so that all else is in order."""
    ordered = sorted(sequence, key=lambda access: access[1])
    body = Seq(tuple(If(BX.equal(by), statement((what, 0, at))) for what, by, at in ordered))
    code = launched([A], "A", body, (1,), (4,), scratch=[OWN])
    if not races([(what, by * 32, at) for what, by, at in ordered]):
        run(code, {"A": np.zeros(64, np.int64)})
        return
    with pytest.raises(InternalError, match="blocks run in any order"):
        run(code, {"A": np.zeros(64, np.int64)})


def test_a_variable_has_its_scope() -> None:
    with pytest.raises(InternalError, match="the variable i is used outside its scope"):
        result([loop(i, 0, 2, store(OUT, TX, i)), store(OUT, TX, Var("i", INDEX))])
