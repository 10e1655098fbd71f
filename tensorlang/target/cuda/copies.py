"""Asynchronous copies: cp.async of each thread, and bulk tensor copies with memory barriers (TMA).

PTX ISA, "Data movement and conversion instructions" and "mbarrier".
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorlang.target.cuda.ptx import Intrinsic, assembly, shared

TENSOR_MAP = "tl_tensor_map"
TENSOR_MAP_TEXT = f"struct __align__(64) {TENSOR_MAP} {{ unsigned long long opaque[16]; }};\n"
"""A tensor map as a kernel gets it, by value: `const __grid_constant__ tl_tensor_map m`."""

_TO_SHARED = (("void*", "to"), ("const void*", "from"))
_BARRIER = ("unsigned long long*", "barrier")


def copy_rows() -> Iterator[Intrinsic]:
    """Yield the asynchronous copies, their waits and their barriers."""
    for cache, size in (("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)):
        yield _cp_async(cache, size)
        yield _cp_async_zfill(cache, size)
    yield _plain(
        "tl_cp_async_commit", "cp.async.commit_group", "sm_80", "close the group of copies begun since the last"
    )
    yield _counted(
        "tl_cp_async_wait", "cp.async.wait_group", "sm_80", "wait until at most PENDING groups are under way"
    )
    yield from _barrier_rows()
    yield from _bulk_rows()
    yield _plain(
        "tl_fence_proxy_async",
        "fence.proxy.async.shared::cta",
        "sm_90",
        "what this thread wrote to shared memory is seen by wgmma and bulk copies that follow; before the barrier",
    )


_THROUGH = {"ca": "through L1", "cg": "past L1"}


def _cp_async(cache: str, size: int) -> Intrinsic:
    mnemonic = f"cp.async.{cache}.shared.global"
    return Intrinsic(
        name=f"tl_cp_async_{cache}_{size}",
        parameters=_TO_SHARED,
        body=assembly(f"{mnemonic} [%0], [%1], {size};", (), [shared("to"), '"l"(from)']),
        architecture="sm_80",
        meaning=f"begin to copy {size} bytes {_THROUGH[cache]} from global to shared memory, both aligned to {size}",
        mnemonic=mnemonic,
    )


def _cp_async_zfill(cache: str, size: int) -> Intrinsic:
    mnemonic = f"cp.async.{cache}.shared.global"
    return Intrinsic(
        name=f"tl_cp_async_{cache}_{size}_zfill",
        parameters=(*_TO_SHARED, ("unsigned", "bytes")),
        body=assembly(f"{mnemonic} [%0], [%1], {size}, %2;", (), [shared("to"), '"l"(from)', '"r"(bytes)']),
        architecture="sm_80",
        meaning=f"begin to copy `bytes` of {size} bytes {_THROUGH[cache]}, zeros to the rest; of 0 nothing is read",
        mnemonic=mnemonic,
    )


def _plain(name: str, mnemonic: str, architecture: str, meaning: str) -> Intrinsic:
    return Intrinsic(name, (), assembly(f"{mnemonic};"), architecture, meaning, mnemonic)


def _counted(name: str, mnemonic: str, architecture: str, meaning: str) -> Intrinsic:
    body = assembly(f"{mnemonic} %0;", (), ['"n"(PENDING)'])
    return Intrinsic(name, (), body, architecture, meaning, mnemonic, template="PENDING")


def _barrier_rows() -> Iterator[Intrinsic]:
    pointer = shared("barrier")

    def row(name: str, mnemonic: str, meaning: str, count: str = "", sink: bool = False) -> Intrinsic:
        parameters = (_BARRIER, ("unsigned", count)) if count else (_BARRIER,)
        line = f"{mnemonic} {'_, ' if sink else ''}[%0]{', %1' if count else ''};"
        inputs = [pointer, f'"r"({count})'] if count else [pointer]
        return Intrinsic(f"tl_mbarrier_{name}", parameters, assembly(line, (), inputs), "sm_90", meaning, mnemonic)

    yield row("init", "mbarrier.init.shared::cta.b64", "a barrier whose phase ends after `count` arrivals", "count")
    yield _plain(
        "tl_mbarrier_fence_init",
        "fence.mbarrier_init.release.cluster",
        "sm_90",
        "barriers that this thread made are seen by bulk copies; after the last of them, before the block's barrier",
    )
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


def _bulk_rows() -> Iterator[Intrinsic]:
    image = (f"const {TENSOR_MAP}*", "map")
    load = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    yield Intrinsic(
        name="tl_tma_load_2d",
        parameters=(("void*", "to"), image, ("int", "x"), ("int", "y"), _BARRIER),
        body=assembly(
            f"{load} [%0], [%1, {{%2, %3}}], [%4];",
            (),
            [shared("to"), '"l"(map)', '"r"(x)', '"r"(y)', shared("barrier")],
        ),
        architecture="sm_90",
        meaning="begin to copy the map's box at column x, row y to shared memory; its bytes count on the barrier",
        mnemonic=load,
        requires=(TENSOR_MAP,),
    )
    store = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group"
    yield Intrinsic(
        name="tl_tma_store_2d",
        parameters=(image, ("int", "x"), ("int", "y"), ("const void*", "from")),
        body=assembly(f"{store} [%0, {{%1, %2}}], [%3];", (), ['"l"(map)', '"r"(x)', '"r"(y)', shared("from")]),
        architecture="sm_90",
        meaning="begin to copy a box from shared memory to column x, row y of the map; what lies outside is dropped",
        mnemonic=store,
        requires=(TENSOR_MAP,),
    )
    yield _plain(
        "tl_tma_store_commit", "cp.async.bulk.commit_group", "sm_90", "close the group of this thread's stores"
    )
    meaning = "wait until at most PENDING groups of stores still read shared memory"
    yield _counted("tl_tma_store_wait_read", "cp.async.bulk.wait_group.read", "sm_90", meaning)
    meaning = "wait until at most PENDING groups of stores are under way"
    yield _counted("tl_tma_store_wait", "cp.async.bulk.wait_group", "sm_90", meaning)
    yield Intrinsic(
        name="tl_tma_prefetch",
        parameters=(image,),
        body=assembly("prefetch.tensormap [%0];", (), ['"l"(map)']),
        architecture="sm_90",
        meaning="bring a tensor map closer",
        mnemonic="prefetch.tensormap",
        requires=(TENSOR_MAP,),
    )
