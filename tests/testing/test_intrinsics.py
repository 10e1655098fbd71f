"""check_intrinsic finds bodies that do something else; intrinsic_of declares what a tile computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tensorlang import te, tir
from tensorlang.te.intrinsic import TensorIntrin
from tensorlang.testing import check_intrinsic, check_schedule
from tensorlang.testing.tiles import intrinsic_of
from tests.intrinsics import tile_matmul
from tests.programs import Case, argmax, chain, matmul, stencil


def test_a_right_intrinsic_passes() -> None:
    check_intrinsic(tile_matmul(2, 3, 4))
    check_intrinsic(tile_matmul(3, 2, 1, "int8"))


def sums(variant: str, wrong: Callable[[Any, Any], Any]) -> TensorIntrin:
    """out[i] += data[i, k] by right loops, but for one variant."""
    data, k = te.placeholder((3, 4), "int32", name="data"), te.reduce_axis((0, 4), "k")
    out = te.compute((3,), lambda i: te.sum(data[i, k], axis=k), name="out")

    def loops(ins: Any, outs: Any, start: bool, add: bool) -> Any:
        ib = tir.ir_builder.create()
        rows, total = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        with ib.for_range(0, 3) as i:
            if start:
                total[i] = 0
            if add:
                with ib.for_range(0, 4) as j:
                    total[i] = total[i] + rows[i, j]
        return ib.get()

    def statements(ins: Any, outs: Any) -> Any:
        made = {
            "body": loops(ins, outs, True, True),
            "reset": loops(ins, outs, True, False),
            "update": loops(ins, outs, False, True),
        }
        return tuple((made | {variant: wrong(ins, outs)}).values())

    strided = te.decl_buffer((3, 4), "int32", name="D", strides=[te.var("row"), 1])
    made: TensorIntrin = te.decl_tensor_intrin(out.op, statements, "sums", binds={data: strided})
    return made


@pytest.mark.parametrize("variant", ["body", "reset", "update"])
def test_a_variant_that_does_something_else_is_found(variant: str) -> None:
    wrong = sums(variant, lambda ins, outs: outs[0].vstore([1], 5))
    with pytest.raises(AssertionError, match=rf"sums: the {variant} does not do what is declared \(out on llvm\)"):
        check_intrinsic(wrong)


SECOND_ROW = """
define i32 @dense(ptr %p) {
  %q = getelementptr i32, ptr %p, i64 4
  %x = load i32, ptr %q
  ret i32 %x
}
"""


def test_rows_may_have_gaps_between_them() -> None:
    """The C function takes rows to follow each other, which a variable stride does not promise."""
    data = te.placeholder((2, 4), "int32", name="data")
    out = te.compute((2, 4), lambda i, j: data[i, j], name="out")
    strided = te.decl_buffer((2, 4), "int32", name="D", strides=[te.var("row"), 1])

    def copy(ins: Any, outs: Any) -> Any:
        ib = tir.ir_builder.create()
        source, target = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        with ib.for_range(0, 8) as i:
            target[i] = source[i]
        target[1, 0] = tir.call_extern("int32", "dense", ins[0].access_ptr("r"))
        return ib.get()

    check_intrinsic(te.decl_tensor_intrin(out.op, copy, "dense", source=SECOND_ROW))
    with pytest.raises(AssertionError, match="dense: the body does not do what is declared"):
        check_intrinsic(te.decl_tensor_intrin(out.op, copy, "dense", binds={data: strided}, source=SECOND_ROW))


@pytest.mark.parametrize("make", [chain, lambda: matmul(6, 8, 8), stencil, argmax])
def test_what_a_tile_computes_can_be_declared_and_fits(make: Callable[[], Case]) -> None:
    fitted = 0
    for at in range(4):
        s, args = make()
        stage = next(x for x in reversed(s.stages) if x.leaf_iter_vars)
        for own in stage.leaf_iter_vars:
            stage.split(own, factor=2, tail="peel")
        loops = [str(a) for a in stage.leaf_iter_vars]
        stage.reorder(*(a for a in loops if a.endswith("_o")), *(a for a in loops if a.endswith("_i")))
        if at >= len(loops):
            continue
        axis = stage.leaf_iter_vars[at].name
        intrin = intrinsic_of(s, stage.name, axis)
        if intrin is None:
            continue
        check_intrinsic(intrin)
        stage.tensorize(axis, intrin)
        check_schedule(s, args)
        fitted += 1
    assert fitted or make is argmax  # the position that argmax keeps is no part of a tile


def test_axes_of_a_tile_may_have_the_names_of_the_reducer() -> None:
    data, k = te.placeholder((4, 3, 2), "float16", name="data"), te.reduce_axis((0, 2), "k")
    out = te.compute((4, 3), lambda x, y: te.sum(data[x, y, k].astype("float32"), axis=k))
    intrin = intrinsic_of(te.create_schedule(out.op), out.op.name, "y")
    assert intrin is not None
    check_intrinsic(intrin)
