"""Asynchronous copies: cp.async of each thread; bulk tensor copies are in `c_source.tensor_copies`.

PTX ISA, "Data movement and conversion instructions".
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorlang.target.c_source.ptx import Intrinsic, assembly, shared
from tensorlang.target.c_source.tensor_copies import tensor_copy_rows

_TO_SHARED = (("void*", "to"), ("const void*", "from"))


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
    yield from tensor_copy_rows()
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
