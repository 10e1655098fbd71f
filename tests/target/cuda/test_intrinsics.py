"""The table of CUDA device functions: what a text needs declared, which architectures have it, that it compiles."""

from __future__ import annotations

import re

import pytest

from tensorlang.errors import TargetError
from tensorlang.target.c_source.ptx import Intrinsic
from tensorlang.target.cuda.fragments import PACKED
from tensorlang.target.cuda.intrinsics import INTRINSICS, available, check, declarations, has, used
from tensorlang.target.cuda.nvrtc import Compiled, compile_cuda, is_available
from tensorlang.target.cuda.wgmma import WIDTHS

nvrtc = pytest.mark.skipif(not is_available(), reason="no NVRTC: pip install nvidia-cuda-nvrtc")

PRODUCT = re.compile(r"tl_wgmma_m64n(\d+)")
CONSTANTS = {"PENDING": "<1>", "REGISTERS": "<40>"}


def call(row: Intrinsic) -> str:
    """A statement that calls a function with arguments of its types, made of the pointer `p`."""
    made = {"float": "__uint_as_float((unsigned)p[0])"}
    arguments = (
        f"({kind})(p + 16)" if kind.endswith("*") else made.get(kind, f"({kind})p[1]") for kind, _ in row.parameters
    )
    text = f"{row.name}{CONSTANTS[row.template] if row.template else ''}({', '.join(arguments)});"
    return text if row.result == "void" else f"p[2] += (unsigned long long){text}"


def kernel(name: str, body: str) -> str:
    return f'extern "C" __global__ void __launch_bounds__(128) {name}(unsigned long long* p) {{\n{body}\n}}\n'


def compiled(text: str, arch: str) -> Compiled:
    return compile_cuda(declarations(text, arch) + text, arch)


def test_every_product_that_is_meant_to_be_there_is_there() -> None:
    warp = {f"tl_mma_m16n8k{8 * n}_{'s32' if e in ('s8', 'u8') else 'f32'}_{e}" for e, n in PACKED.items()}
    group = {
        f"tl_wgmma_m64n{width}k{8 * n}_{'s32' if e in ('s8', 'u8') else 'f32'}_{e}{left}{right}"
        for e, n in PACKED.items()
        for width in WIDTHS
        for left in (("", "_ra", "_km") if n == 2 else ("", "_ra"))
        for right in (("", "_kn") if n == 2 else ("",))
    }
    assert {name for name in INTRINSICS if "mma_m" in name} == warp | group | {"tl_mma_m16n8k16_f16_f16"}


def test_a_row_is_a_device_function_over_its_own_operands() -> None:
    for name, row in INTRINSICS.items():
        assert name == row.name and re.fullmatch(r"tl_\w+", name)
        assert f"__device__ __forceinline__ {row.result} {name}(" in row.text
        assert row.mnemonic in row.text
        assert all(re.search(rf"\b{parameter}\b", row.body) for _, parameter in row.parameters)
        placed = [int(n) for n in re.findall(r"%(\d+)", row.text)]
        given = len(re.findall(r'"[+=]?[rlfhn]"\(', row.text))
        assert set(placed) == set(range(given))


def test_meanings_are_distinct_lines() -> None:
    meanings = [row.meaning for row in INTRINSICS.values()]
    assert len(set(meanings)) == len(meanings)
    assert not [m for m in meanings if "\n" in m or m.endswith(".")]


def test_declarations_are_those_of_the_calls() -> None:
    text = "tl_ldmatrix_x4(r, p); tl_ldmatrix_x4(s, p); not_tl_ldmatrix_x2(r); tl_cp_async_wait<1>();"
    assert used(text) == ("tl_ldmatrix_x4", "tl_cp_async_wait")
    declared = declarations(text, "sm_80")
    assert declared.count("__device__") == 2
    assert "template <int PENDING>\n__device__ __forceinline__ void tl_cp_async_wait()" in declared
    assert "tl_tensor_map" not in declared


def test_what_a_text_defines_is_not_declared_again() -> None:
    own = INTRINSICS["tl_bf16x2_from_f32"].text + INTRINSICS["tl_cp_async_wait"].text
    assert used(own + "tl_bf16x2_from_f32(x, y); tl_cp_async_wait<0>(); tl_cp_async_commit();") == (
        "tl_cp_async_commit",
    )


def test_a_type_is_declared_once_before_what_takes_it() -> None:
    declared = declarations("tl_tma_load_2d(to, &map, x, y, b); tl_tma_prefetch(&map);", "sm_90")
    assert declared.count("struct __align__(64) tl_tensor_map") == 1
    assert declared.index("struct") < declared.index("tl_tma_load_2d")
    assert declarations("void f(const __grid_constant__ tl_tensor_map m)", "sm_80").startswith("struct")
    assert declarations("c[i] = a[i] + b[i];", "sm_75") == ""


@pytest.mark.parametrize(
    ("arch", "wanted", "answer"),
    [
        ("sm_80", "sm_80", True),
        ("sm_86", "sm_89", False),
        ("sm_90a", "sm_89", True),
        ("sm_100", "sm_90", True),
        ("sm_90", "sm_90a", False),
        ("sm_100a", "sm_90a", False),
        ("sm_90a", "sm_90a", True),
    ],
)
def test_letters_name_the_only_architecture(arch: str, wanted: str, answer: bool) -> None:
    assert has(arch, wanted) is answer


def test_available_functions_grow_with_the_architecture() -> None:
    older, newer, hopper, later = (set(available(arch)) for arch in ("sm_80", "sm_89", "sm_90a", "sm_120"))
    assert older < newer < later < hopper
    assert newer - older == {n for n in INTRINSICS if "e4m3" in n or "e5m2" in n} - {n for n in hopper if "wgmma" in n}
    assert all("wgmma" in n or "setmaxnreg" in n for n in hopper - later)


def test_an_instruction_that_the_architecture_lacks_is_refused() -> None:
    with pytest.raises(TargetError, match="needs sm_89, or a later one, and the target is sm_80"):
        declarations("tl_mma_m16n8k32_f32_e4m3(c, a, b);", "sm_80")
    with pytest.raises(TargetError, match=r"needs sm_90a, runs on no other, and .* sm_100; .* -arch=sm_90a"):
        check("tl_wgmma_fence", "sm_100")
    with pytest.raises(TargetError, match="named like sm_80 or sm_90a, got 'gfx90a'"):
        check("tl_ldmatrix_x4", "gfx90a")


@nvrtc
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_every_function_compiles_where_it_is_available(arch: str) -> None:
    names = available(arch)
    made = compiled(kernel("calls", "\n".join(call(INTRINSICS[name]) for name in names)), arch)
    ptx = made.ptx()
    assert [name for name in names if INTRINSICS[name].mnemonic not in ptx] == []


@nvrtc
def test_every_form_of_wgmma_compiles() -> None:
    """All types and forms of the narrowest, and the widest of one type; the others differ in the count of registers."""
    names = [
        name
        for name in available("sm_90a")
        if (found := PRODUCT.match(name)) and (found[1] == "64" or (found[1] == "256" and "_bf16" in name))
    ]
    after = "tl_wgmma_commit(); tl_wgmma_wait<0>();"
    text = "".join(kernel(f"use_{name}", f"tl_wgmma_fence(); {call(INTRINSICS[name])} {after}") for name in names)
    text += kernel(
        "registers", f"{call(INTRINSICS['tl_setmaxnreg_dec'])} p[3] = {call(INTRINSICS['tl_wgmma_descriptor'])}"
    )
    made = compiled(text, "sm_90a")
    assert len(made.names) == len(names) + 1 == 29
    assert [kernel.name for kernel in made.report.kernels if kernel.spills] == []


@nvrtc
def test_two_calls_of_a_function_with_labels_do_not_collide() -> None:
    text = kernel("waits", "tl_mbarrier_wait(p, 0); tl_mbarrier_wait(p + 1, 0);")
    assert compiled(text, "sm_90").ptx().count("mbarrier.try_wait") == 2
