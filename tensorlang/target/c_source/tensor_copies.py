"""Device functions of bulk tensor copies (TMA), and of the barriers in shared memory that count them.

PTX ISA, "Data movement and conversion instructions" and "mbarrier".
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorlang.target.c_source.ptx import Intrinsic, assembly, shared

TENSOR_MAP = "tl_tensor_map"
TENSOR_MAP_TEXT = f"struct __align__(64) {TENSOR_MAP} {{ unsigned long long opaque[16]; }};\n"
"""A tensor map as a kernel gets it, by value: `const __grid_constant__ tl_tensor_map m`."""

_DIMENSIONS = range(1, 6)
_STORED = 2
_COORDINATES = "xyzvw"
_BARRIER = ("unsigned long long*", "barrier")


def tensor_copy_rows() -> Iterator[Intrinsic]:
    """Yield the barriers, the copies of boxes both ways, and what they need."""
    yield from _barrier_rows()
    for rank in _DIMENSIONS:
        yield _load(rank)
    yield from _store_rows()
    yield Intrinsic(
        name="tl_tma_prefetch",
        parameters=((f"const {TENSOR_MAP}*", "map"),),
        body=assembly("prefetch.tensormap [%0];", (), ['"l"(map)']),
        architecture="sm_90",
        meaning="bring a tensor map closer",
        mnemonic="prefetch.tensormap",
        requires=(TENSOR_MAP,),
    )


def _barrier_rows() -> Iterator[Intrinsic]:
    pointer = shared("barrier")

    def row(name: str, mnemonic: str, meaning: str, count: str = "", sink: bool = False) -> Intrinsic:
        parameters = (_BARRIER, ("unsigned", count)) if count else (_BARRIER,)
        line = f"{mnemonic} {'_, ' if sink else ''}[%0]{', %1' if count else ''};"
        inputs = [pointer, f'"r"({count})'] if count else [pointer]
        return Intrinsic(f"tl_mbarrier_{name}", parameters, assembly(line, (), inputs), "sm_90", meaning, mnemonic)

    yield row("init", "mbarrier.init.shared::cta.b64", "a barrier whose phase ends after `count` arrivals", "count")
    fence = "fence.mbarrier_init.release.cluster"
    meaning = "barriers that this thread made are seen by bulk copies; before the block's barrier"
    yield Intrinsic("tl_mbarrier_fence_init", (), assembly(f"{fence};"), "sm_90", meaning, fence)
    yield row("arrive", "mbarrier.arrive.shared::cta.b64", "arrive once", sink=True)
    meaning = "arrive once, and let the phase also wait for `bytes` bytes of bulk copies"
    yield row("arrive_expect_tx", "mbarrier.arrive.expect_tx.shared::cta.b64", meaning, "bytes", sink=True)
    yield row("expect_tx", "mbarrier.expect_tx.relaxed.cta.shared::cta.b64", "the same without arriving", "bytes")
    test = "mbarrier.try_wait.parity.shared::cta.b64"
    inputs = [pointer, '"r"(parity)']
    lines = ["{", ".reg .pred p;", f"{test} p, [%1], %2;", "selp.u32 %0, 1, 0, p;", "}"]
    yield Intrinsic(
        name="tl_mbarrier_try_wait",
        parameters=(_BARRIER, ("unsigned", "parity")),
        body="unsigned done;\n" + assembly(lines, ['"=r"(done)'], inputs) + "\nreturn done;",
        architecture="sm_90",
        meaning="1 when the phase of this parity is over, 0 when it is not after a while; a new barrier is in phase 0",
        mnemonic=test,
        result="unsigned",
    )
    loop = ["{", ".reg .pred p;", "WAIT:", f"{test} p, [%0], %1;", "@p bra DONE;", "bra WAIT;", "DONE:", "}"]
    yield Intrinsic(
        name="tl_mbarrier_wait",
        parameters=(_BARRIER, ("unsigned", "parity")),
        body=assembly(loop, (), inputs),
        architecture="sm_90",
        meaning="wait until the phase of this parity is over; parity 1 passes at once on a new barrier",
        mnemonic=test,
    )


def _load(rank: int) -> Intrinsic:
    load = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    at = _COORDINATES[:rank]
    places = ", ".join(f"%{k + 2}" for k in range(rank))
    inputs = [shared("to"), '"l"(map)', *(f'"r"({c})' for c in at), shared("barrier")]
    return Intrinsic(
        name=f"tl_tma_load_{rank}d",
        parameters=(("void*", "to"), (f"const {TENSOR_MAP}*", "map"), *(("int", c) for c in at), _BARRIER),
        body=assembly(f"{load} [%0], [%1, {{{places}}}], [%{rank + 2}];", (), inputs),
        architecture="sm_90",
        meaning=f"begin to copy the map's box at {', '.join(at)}, innermost first; its bytes count on the barrier",
        mnemonic=load,
        requires=(TENSOR_MAP,),
    )


def _store_rows() -> Iterator[Intrinsic]:
    store = f"cp.async.bulk.tensor.{_STORED}d.global.shared::cta.bulk_group"
    yield Intrinsic(
        name=f"tl_tma_store_{_STORED}d",
        parameters=((f"const {TENSOR_MAP}*", "map"), ("int", "x"), ("int", "y"), ("const void*", "from")),
        body=assembly(f"{store} [%0, {{%1, %2}}], [%3];", (), ['"l"(map)', '"r"(x)', '"r"(y)', shared("from")]),
        architecture="sm_90",
        meaning="begin to copy a box from shared memory to column x, row y of the map; what lies outside is dropped",
        mnemonic=store,
        requires=(TENSOR_MAP,),
    )
    commit = "cp.async.bulk.commit_group"
    meaning = "close the group of this thread's stores"
    yield Intrinsic("tl_tma_store_commit", (), assembly(f"{commit};"), "sm_90", meaning, commit)
    for suffix, word in (("_read", "still read shared memory"), ("", "are under way")):
        wait = f"cp.async.bulk.wait_group{suffix.replace('_', '.')}"
        yield Intrinsic(
            name=f"tl_tma_store_wait{suffix}",
            parameters=(),
            body=assembly(f"{wait} %0;", (), ['"n"(PENDING)']),
            architecture="sm_90",
            meaning=f"wait until at most PENDING groups of stores {word}",
            mnemonic=wait,
            template="PENDING",
        )
