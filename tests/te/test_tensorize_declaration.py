"""Declaring an intrinsic: what te.decl_tensor_intrin, decl_buffer and the builder accept, and how they refuse."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tensorlang import te, tir
from tensorlang.errors import DefinitionError
from tensorlang.te.intrinsic import TensorIntrin, is_plain
from tensorlang.te.operation import ComputeOp, Tensor
from tensorlang.te.tensor_intrin import find_intrin
from tensorlang.te.tile_buffer import TileBuffer

Body = Callable[[list[TileBuffer], list[TileBuffer]], Any]


def doubled(n: int = 4) -> Tensor:
    """out = 2 data."""
    data = te.placeholder((n,), name="data")
    out: Tensor = te.compute((n,), lambda i: data[i] * 2, name="out")
    return out


def row_sums() -> Tensor:
    """out[i] = the sum of data[i, k]."""
    data = te.placeholder((4, 8), name="data")
    k = te.reduce_axis((0, 8), "k")
    out: Tensor = te.compute((4,), lambda i: te.sum(data[i, k], axis=k), name="out")
    return out


def declared(tensor: Tensor, body: Body, **options: Any) -> TensorIntrin:
    """An intrinsic of that computation."""
    assert isinstance(tensor.op, ComputeOp)
    made: TensorIntrin = te.decl_tensor_intrin(tensor.op, body, name="example", **options)
    return made


def double_all(ins: list[TileBuffer], outs: list[TileBuffer]) -> Any:
    """A correct body of `doubled`."""
    ib = tir.ir_builder.create()
    data, out = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
    with ib.for_range(0, ins[0].shape[0], name="i") as i:
        out[i] = data[i] * 2.0
    return ib.get()


def test_the_declaration_tells_what_is_computed_and_how() -> None:
    assert str(declared(doubled(), double_all)) == (
        "intrinsic example  \n"
        "input data: float32[4]\n"
        "out: float32[4] [i < 4] = data[i] * 2.0\n"
        "return out\n\n"
        "data: float32[4] strides [1] offset 1 alignment 0\n"
        "out: float32[4] strides [1] offset 1 alignment 0\n"
        "body:\n"
        "for i%1 in range(4):\n"
        "  out[i%1] = data[i%1] * 2.0\n"
    )


def test_what_tells_intrinsics_apart_is_their_declaration() -> None:
    first, again, wider = (declared(doubled(n), double_all) for n in (4, 4, 8))
    assert first.key == again.key != wider.key
    assert declared(doubled(), double_all, features=("avx2",)).key != first.key
    assert declared(doubled(), double_all, source="; nothing").key != first.key
    assert te.intrin("example").key != wider.key
    assert find_intrin("example", wider.key) is wider and find_intrin("example", "0" * 16) is None


def test_keys_are_the_same_in_every_process() -> None:
    code = "from tensorlang import te; print(te.intrin('x86.avx512.vpdpbusd').key)"
    keys = {subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
            for _ in range(2)}  # fmt: skip
    assert keys == {te.intrin("x86.avx512.vpdpbusd").key}


def test_a_name_that_nobody_declared_lists_the_families_and_the_nearest_names() -> None:
    families = r"no intrinsic 'x86.vpdp'; there are aarch64\.neon\.\.\., .*cuda\.ldmatrix\.\.\., .*x86\.avx512\.\.\."
    with pytest.raises(DefinitionError, match=families + r"; did you mean x86\.avx2\.vpdpbusd"):
        te.intrin("x86.vpdp")
    with pytest.raises(DefinitionError, match=r"x86\.avx512\.\.\.\n"):
        te.intrin("wmma_16x16x16")


def test_importing_te_does_not_declare_tensorlangs_own_intrinsics() -> None:
    code = "import sys; from tensorlang import te; te.decl_tensor_intrin; print('tensorlang.target' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_plain_statements_are_those_of_loop_ir() -> None:
    assert is_plain(declared(doubled(), double_all).body)
    vectors = declared(doubled(), lambda ins, outs: outs[0].vstore([0], ins[0].vload([0], "float32x4") * 2.0))
    assert not is_plain(vectors.body)


def test_the_builder_nests_what_it_is_told() -> None:
    def body(ins: list[TileBuffer], outs: list[TileBuffer]) -> Any:
        ib = tir.ir_builder.create()
        data, out = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        total = ib.allocate("float32", (1,), name="total")
        with ib.for_range(0, 4, name="i", kind="unroll") as i:
            half = ib.let("half", data[i] * 0.5)
            with ib.if_scope(i > 0):
                total[0] = total[0] + half
            with ib.else_scope():
                total[0] = half
            out[i] = data[i] + data[i] + total[0] * 0.0
        return ib.get()

    assert "\n".join(declared(doubled(), body).text.splitlines()[7:]) == (
        "body:\n"
        "allocate total%1: float32[1] in local\n"
        "unrolled i%2 in range(4):\n"
        "  let half%3 = data[i%2] * 0.5\n"
        "  if int32(i%2) > 0:\n"
        "    total%1[0] = total%1[0] + half%3\n"
        "  else:\n"
        "    total%1[0] = half%3\n"
        "  out[i%2] = data[i%2] + data[i%2] + total%1[0] * 0.0"
    )


def test_one_index_of_several_dimensions_counts_row_by_row() -> None:
    data = te.placeholder((2, 3), name="data")
    out = te.compute((2, 3), lambda i, j: data[i, j] + 1, name="out")

    def body(ins: list[TileBuffer], outs: list[TileBuffer]) -> Any:
        ib = tir.ir_builder.create()
        ib.buffer_ptr(outs[0])[4] = ib.buffer_ptr(ins[0])[4] + 1.0
        return ib.get()

    assert "out[1, 1] = data[1, 1] + 1.0" in declared(out, body).text


def stored(value: Any) -> Body:
    """A body that stores one value."""
    return lambda ins, outs: outs[0].vstore([0], value)


REFUSED: dict[str, tuple[Callable[[], Tensor], Body, dict[str, Any], str]] = {
    "no statement": (doubled, lambda ins, outs: 7, {}, r"fcompute of example returns statements .*got 7"),
    "nothing": (doubled, lambda ins, outs: None, {}, r"returns body, or \(body, reset, update\); got None"),
    "an empty body": (doubled, lambda ins, outs: tir.ir_builder.create().get(), {}, "a body of example is empty"),
    "an update without a reduction": (
        doubled, lambda ins, outs: (double_all(ins, outs),) * 3, {}, "example has no reduction",
    ),
    "a reset alone": (
        row_sums, lambda ins, outs: (stored(0.0)(ins, outs),) * 2, {}, "a reset, but no update",
    ),
    "a reset that reads": (
        row_sums,
        lambda ins, outs: (stored(0.0)(ins, outs), outs[0].vstore([0], ins[0].vload([0, 0])), stored(0.0)(ins, outs)),
        {},
        "the reset of example reads the input data",
    ),
    "a stored input": (doubled, lambda ins, outs: ins[0].vstore([0], 1.0), {}, "the body of example writes the input"),
    "a written pointer to an input": (
        doubled, lambda ins, outs: tir.call_extern("void", "f", ins[0].access_ptr("w")), {}, "writes the input data",
    ),
    "another array": (
        doubled,
        lambda ins, outs: outs[0].vstore([0], te.decl_buffer((4,), name="strange").vload([0])),
        {},
        r"uses strange: float32\[4\], none of its arrays",
    ),
    "a sum of too many levels": (
        doubled, lambda ins, outs: outs[0].vstore([0], sum([ins[0].vload([0])] * 70)), {}, r"nests 7. levels .* ib.let",
    ),
    "outside": (doubled, lambda ins, outs: outs[0].vstore([5], 1.0), {}, r"uses 5 to 5 of dimension 0 of out"),
    "too many lanes": (
        doubled, lambda ins, outs: outs[0].vstore([0], ins[0].vload([0], "float32x8")), {}, "8 lanes from .0. of data",
    ),
    "lanes that differ": (
        doubled,
        lambda ins, outs: outs[0].vstore([0], ins[0].vload([0], "float32x4") + ins[0].vload([0], "float32x2")),
        {},
        "vectors of 2 and 4 lanes meet",
    ),
    "another dtype": (doubled, lambda ins, outs: outs[0].vstore([0], tir.const(1, "int32x4")), {}, "holds float32"),
    "bits that do not fit": (
        doubled, lambda ins, outs: tir.reinterpret("int8x64", ins[0].vload([0], "float32x4")), {}, "has 128 bits",
    ),
    "a stride that is missing": (
        row_sums, double_all, {"default_buffer_params": {"strides": [1]}}, "data needs one stride",
    ),
    "scalar parameters": (doubled, double_all, {"scalar_params": [te.var("x")]}, "scalar_params belong to"),
    "no llvm name": (
        doubled, lambda ins, outs: tir.call_llvm_intrin("float32", "fma", 1.0), {}, "names of LLVM intrinsics begin",
    ),
    "another intrinsic": (
        doubled, lambda ins, outs: tir.call_intrin("float32", "tir.own", 1.0), {}, "call_intrin knows tir.reinterpret",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_body_that_does_not_fit_is_refused(name: str) -> None:
    make, body, options, message = REFUSED[name]
    with pytest.raises(DefinitionError, match=message):
        declared(make(), body, **options)


def symbolic() -> Tensor:
    n = te.var("n")
    data = te.placeholder((n,), name="data")
    out: Tensor = te.compute((n,), lambda i: data[i], name="out")
    return out


def two_steps() -> Tensor:
    first = doubled()
    out: Tensor = te.compute((4,), lambda i: first[i] + 1, name="second")
    return out


def more_than_read() -> Tensor:
    data = te.placeholder((9,), name="data")
    out: Tensor = te.compute((4,), lambda i: data[2 * i], name="out")
    return out


def by_data() -> Tensor:
    at = te.placeholder((4,), "int32", name="at")
    data = te.placeholder((4,), name="data")
    out: Tensor = te.compute((4,), lambda i: data[at[i]], name="out")
    return out


def some_of_it() -> Tensor:
    data = te.placeholder((8,), name="data")
    k = te.reduce_axis((0, 8), "k")
    out: Tensor = te.compute((1,), lambda i: te.sum(data[k], axis=k, where=data[k] > 0), name="out")
    return out


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (symbolic, "axis i of example must run from 0 to a number"),
        (two_steps, "example must compute from placeholders, but out is computed itself"),
        (more_than_read, r"declares data: float32\[9\] and reads 0 to 6 of dimension 0; declare what is read"),
        (by_data, r"reads data\[at\[i\]\]: an intrinsic's indices are sums"),
        (some_of_it, "example reduces under a condition"),
    ],
)
def test_a_computation_without_one_size_is_refused(make: Callable[[], Tensor], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        declared(make(), double_all)


def test_only_the_operation_of_a_compute_can_be_declared() -> None:
    data = te.placeholder((4,), name="data")
    with pytest.raises(DefinitionError, match=r"needs the operation of a te\.compute, got PlaceholderOp"):
        te.decl_tensor_intrin(data.op, double_all)


def test_a_bound_buffer_has_the_shape_and_dtype_of_its_tensor() -> None:
    data = te.placeholder((4,), name="data")
    out = te.compute((4,), lambda i: data[i] * 2, name="out")
    with pytest.raises(DefinitionError, match=r"the buffer of data must be float32\[4\], got TileBuffer\(shape=\(5,\)"):
        declared(out, double_all, binds={data: te.decl_buffer((5,), name="D")})


def test_strides_are_numbers_or_variables_one_per_dimension() -> None:
    with pytest.raises(DefinitionError, match="B needs one stride"):
        te.decl_buffer((4, 4), name="B", strides=[1])
    with pytest.raises(DefinitionError, match="B needs one stride"):
        te.decl_buffer((4, 4), name="B", strides=[te.var("s") * 2, 1])
    A = te.placeholder((4,), name="A")
    twice = te.compute((4,), lambda i: A[i] * 2, name="twice")
    with pytest.raises(DefinitionError, match=r"the buffer of A must be float32\[4\], got ArrayBuffer"):
        te.decl_tensor_intrin(twice.op, lambda ins, outs: None, binds={A: te.decl_buffer((te.var("n"),), name="B")})
    assert [str(s) for s in te.decl_buffer((4, 3), name="B").strides] == ["3", "1"]


def test_rows_with_a_stride_of_their_own_are_loaded_one_by_one() -> None:
    B = te.decl_buffer((4, 4), name="B", strides=[te.var("s"), 1])
    assert str(B.vload([2, 0], "float32x4")) == "B[2, 0 x 4]"
    with pytest.raises(DefinitionError, match=r"16 lanes from .0, 0. of B are not side by side"):
        B.vload([0, 0], "float32x16")
    with pytest.raises(DefinitionError, match="access_ptr takes no offset there"):
        te.decl_buffer((4, 4), name="B", strides=[4, te.var("s")]).access_ptr("r", offset=4)
    assert str(te.decl_buffer((4, 4), name="B").access_ptr("rw", offset=6)) == "&B[0, 6]"


def test_an_index_does_not_hold_a_stride() -> None:
    data = te.placeholder((4, 4), name="data")
    out = te.compute((4, 4), lambda i, j: data[i, j] * 2, name="out")
    strided = te.decl_buffer((4, 4), name="D", strides=[te.var("s"), 1])

    def body(ins: list[TileBuffer], outs: list[TileBuffer]) -> Any:
        return outs[0].vstore([0, 0], ins[0].vload([0, ins[0].strides[0]]))

    with pytest.raises(DefinitionError, match="has a stride in an index of D; write one index per dimension"):
        declared(out, body, binds={data: strided})
