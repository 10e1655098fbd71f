"""The matrix instructions that schedules can name: what they declare, and that their code compiles."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tensorlang import te
from tensorlang.errors import BadArgument, DefinitionError
from tensorlang.ir.machine import ASYNC_PROXY
from tensorlang.schedule import Schedule
from tensorlang.target.cuda.fragments import GROUP, WARP
from tensorlang.target.cuda.instructions import TABLE
from tensorlang.te.machine import call_extern
from tensorlang.te.tensor_intrin import own_names
from tests.target.cuda.tensor_core_gemm import Product, program

ELEMENTS = ("bf16", "f16", "tf32", "s8", "u8", "e4m3", "e5m2")


def test_schedules_find_them_by_name() -> None:
    assert set(TABLE) <= set(own_names())
    products = {n for n in TABLE if n.startswith("cuda.mma.")}
    assert {re.split(r"[.]", n)[3] for n in products} == set(ELEMENTS)
    assert all(f"cuda.ldmatrix.{word}.{e}" in TABLE for e in ELEMENTS for word in ("a", "bt"))
    assert all(f"cuda.stmatrix.{word}{e}" in TABLE for e in ("bf16", "f16") for word in ("", "trans.", "group."))
    assert {n for n in TABLE if n.startswith("cuda.ldmatrix.b.")} == {"cuda.ldmatrix.b.bf16", "cuda.ldmatrix.b.f16"}


@pytest.mark.parametrize("name", TABLE)
def test_each_declares_what_lanes_hold(name: str) -> None:
    found = te.intrin(name)
    assert found.lanes == (GROUP if "wgmma" in name or ".group." in name else WARP) and found.architecture == "cuda"
    assert (ASYNC_PROXY in found.features) == ("wgmma" in name)
    held = [tile for tile in found.buffers.values() if tile.fragment]
    assert len(held) == (2 if ".ra" in name else 1 if re.search("wgmma|ldmatrix|stmatrix", name) else 3)
    assert all(tile.scope == "warp" and tile.fragment and tile.fragment.lanes == found.lanes for tile in held)
    called = set(re.findall(r"void (tl_\w+)\(&", found.text))
    assert called and all(f" {function}(" in found.source for function in called)


def matrices(p: Product) -> tuple[Schedule, str]:
    """The product of a program as a stage in registers, tiled as the instruction is."""
    *_, C, _ = program(p)
    s = te.create_schedule(C.op)
    held = s.cache_write(C, "warp")
    i, j = s[held].op.axis
    _, _, inner, _ = s[held].tile(i, j, 16, 8)
    return s, str(inner)


def test_operands_in_memory_are_refused() -> None:
    s, inner = matrices(Product(32, 32, 16))
    with pytest.raises(BadArgument, match="lives in global memory, the intrinsic takes a from warp"):
        s["C.warp"].tensorize(inner, te.intrin("cuda.mma.m16n8k16.bf16"))


def test_warp_groups_want_swizzled_rows() -> None:
    A, B, *_, C = program(Product(64, 64, 64, turned=True))
    s = te.create_schedule(C.op)
    held = s.cache_write(C, "warp")
    shared = [s.cache_read(x, "shared", [held]) for x in (A, B)]
    instruction = te.intrin("cuda.wgmma.m64n64k64.bf16.bt")
    with pytest.raises(BadArgument, match=r"takes a in swizzled rows, and those of A\.shared are not") as refused:
        s[held].tensorize(s[held].op.axis[0], instruction)
    assert "s['A.shared'].swizzle() first" in str(refused.value)
    for x in shared:
        s[x].swizzle()
    s[held].tensorize(s[held].op.axis[0], instruction)


def test_rows_along_columns_lie_in_panels() -> None:
    A, B, *_, C = program(Product(64, 128, 64))
    s = te.create_schedule(C.op)
    held = s.cache_write(C, "warp")
    shared = [s.cache_read(x, "shared", [held]) for x in (A, B)]
    for x in shared:
        s[x].swizzle()
    instruction = te.intrin("cuda.wgmma.m64n128k64.bf16")
    with pytest.raises(BadArgument, match=r"takes b as 64 rows in panels of 128 bytes, and .* has none") as refused:
        s[held].tensorize(s[held].op.axis[0], instruction)
    assert "s['B.shared'].swizzle(panels=True)" in str(refused.value)
    s[shared[1]].swizzle(panels=True)
    s[held].tensorize(s[held].op.axis[0], instruction)


def test_a_group_has_functions_that_close_it_and_wait() -> None:
    a = te.placeholder((4,), name="a")
    b = te.compute((4,), lambda i: a[i] + 1, name="b")

    def statements(ins: Any, outs: Any) -> Any:
        return call_extern("void", "own", outs[0].access_ptr("w"), ins[0].access_ptr("r"))

    own = "__device__ void own(float* b, const float* a);"
    ends = "__device__ void later_commit();\n\ntemplate <int N> __device__ void later_wait();"
    with pytest.raises(DefinitionError, match=r"the source of own has to define later_commit\(\)"):
        te.decl_tensor_intrin(b.op, statements, "own", source=own, lanes=32, group="later")
    made = te.decl_tensor_intrin(b.op, statements, "own", source=f"{own}\n\n{ends}", lanes=32, group="later")
    assert made.code("body").group == "later" and "in groups later" in made.text


def test_a_tile_in_registers_has_a_fragment_of_its_lanes() -> None:
    found = te.intrin("cuda.mma.m16n8k16.bf16")
    fragment = next(tile.fragment for tile in found.buffers.values())
    with pytest.raises(DefinitionError, match="a tile in registers of a warp has both"):
        te.decl_buffer((16, 16), "bfloat16", scope="warp")
    with pytest.raises(DefinitionError, match="no whole number of fragments"):
        te.decl_buffer((16, 8), "bfloat16", scope="warp", fragment=fragment)
