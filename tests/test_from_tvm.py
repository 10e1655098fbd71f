"""docs/from_tvm.md is true: what it calls the same is there, and what it calls missing says so and what to do."""

from __future__ import annotations

import inspect
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tensorlang as tvm
from tensorlang import te, tir, topi
from tensorlang.names import PAGE

TEXT = (Path(__file__).parent.parent / PAGE).read_text(encoding="utf-8")

TE = """
placeholder compute scan extern extern_primfunc var size_var const thread_axis reduce_axis create_prim_func
decl_tensor_intrin gradient hybrid comm_reducer sum min max any all SpecializedCondition AXIS_SEPARATOR tag_scope trace
create_schedule Schedule Stage Tensor TensorSlice PlaceholderOp ComputeOp TensorComputeOp ScanOp ExternOp HybridOp
exp erf tanh sigmoid log tan cos sin sqrt rsqrt floor ceil sinh cosh log2 log10 asin asinh acos acosh atan atanh trunc
abs round nearbyint power popcount fmod if_then_else isnan isfinite isinf div indexdiv indexmod truncdiv truncmod
floordiv floormod min_value max_value add subtract multiply
"""
"""What `tvm.te` offered in 0.14."""

TIR = """
PrimExpr const Buffer decl_buffer DataProducer Layout BijectiveLayout bijective_layout layout Var SizeVar Reduce
FloatImm IntImm StringImm Cast Add Sub Mul Div Mod FloorDiv FloorMod Min Max EQ NE LT LE GT GE And Or Not Select
BufferLoad
ProducerLoad Ramp Broadcast Shuffle Call CallEffectKind Let IterVar CommReducer Stmt LetStmt AssertStmt ForKind For
While BufferStore BufferRealize ProducerStore Allocate AllocateConst AttrStmt DeclBuffer ProducerRealize SeqStmt
IfThenElse Evaluate Prefetch stmt_seq stmt_list BufferRegion MatchBufferRegion Block BlockRealize PrimFunc TensorIntrin
IndexMap call_packed_lowered call_cpacked_lowered call_tir call_packed call_cpacked call_intrin call_pure_extern
call_extern call_llvm_intrin call_llvm_pure_intrin ret all any min_value max_value trace tvm_check_return
tvm_stack_alloca tvm_stack_make_shape tvm_stack_make_array tvm_tuple tvm_struct_get tvm_struct_set address_of
lookup_param assume undef tvm_thread_allreduce type_annotation tvm_access_ptr tvm_throw_last_error tvm_load_matrix_sync
tvm_store_matrix_sync tvm_mma_sync tvm_bmma_sync tvm_fill_fragment ptx_mma ptx_mma_sp mma_store mma_fill ptx_ldmatrix
ptx_cp_async ptx_cp_async_bulk ptx_commit_group ptx_wait_group ptx_cp_async_barrier ptx_init_barrier_thread_count
ptx_arrive_barrier ptx_arrive_barrier_expect_tx ptx_wait_barrier create_barriers vectorlow vectorhigh vectorcombine
infinity reinterpret exp exp2 exp10 log log2 log10 log1p ldexp clz sin sinh asin asinh cos cosh acos acosh tan tanh atan
atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor erf sigmoid sqrt rsqrt floor ceil hypot trunc abs round
nextafter nearbyint power pow popcount fmod if_then_else likely isnan isnullptr isfinite isinf copysign div indexdiv
indexmod truncdiv truncmod floordiv floormod ceildiv comm_reducer min max sum q_multiply_shift q_multiply_shift_per_axis
shift_left shift_right TVMBackendAllocWorkspace TVMBackendFreeWorkspace start_profile_intrinsic end_profile_intrinsic
vscale add subtract multiply StmtSRef BlockScope ScheduleState Schedule ScheduleError BlockDependenceInfo schedule
ir_builder transform analysis stmt_functor usmp
"""
"""What `tvm.tir` offered in 0.14."""

SCHEDULE = "normalize create_group cache_read cache_write rfactor"
STAGE = """
split fuse set_scope bind env_threads set_store_predicate compute_at compute_inline compute_root reorder tile vectorize
tensorize unroll parallel pragma prefetch storage_align double_buffer rolling_buffer transform_layout
"""
"""The primitives of `te.Schedule` and of `te.Stage`, beside `create_schedule` and indexing."""


PARAMETERS = """
te.placeholder shape dtype name
te.compute shape fcompute name tag attrs varargs_names
te.scan init update state_placeholder inputs name tag attrs
te.extern shape inputs fcompute name dtype in_buffers out_buffers tag
te.var name dtype
te.size_var name dtype
te.const value dtype
te.thread_axis dom tag name
te.reduce_axis dom name
te.create_prim_func ops
te.decl_tensor_intrin op fcompute name binds scalar_params default_buffer_params
te.gradient output inputs head
te.comm_reducer fcombine fidentity name
te.tag_scope tag
te.create_schedule ops
te.sum expr axis where init
te.min expr axis where init
te.max expr axis where init
te.if_then_else cond t f
tir.call_extern dtype func_name
tir.call_intrin dtype func_name
tir.reinterpret dtype value
tir.const value dtype
tir.decl_buffer shape dtype name data strides elem_offset scope data_alignment offset_factor buffer_type
te.Schedule.create_group outputs inputs include_inputs
te.Schedule.cache_read tensor scope readers
te.Schedule.cache_write tensor scope
te.Schedule.rfactor tensor axis factor_axis
te.Stage.split parent factor nparts
te.Stage.fuse args
te.Stage.set_scope scope
te.Stage.bind ivar thread_ivar
te.Stage.env_threads threads
te.Stage.set_store_predicate predicate
te.Stage.compute_at parent scope
te.Stage.compute_inline
te.Stage.compute_root
te.Stage.reorder args
te.Stage.tile x_parent y_parent x_factor y_factor
te.Stage.vectorize var
te.Stage.tensorize var tensor_intrin
te.Stage.unroll var
te.Stage.parallel var
te.Stage.pragma var pragma_type pragma_value
te.Stage.prefetch tensor var offset
te.Stage.storage_align axis factor offset
te.Stage.double_buffer
te.Stage.rolling_buffer
te.Stage.transform_layout mapping_function
topi.nn.dense data weight bias out_dtype
topi.nn.conv2d data weight strides padding dilation data_layout kernel_layout out_dtype
topi.nn.conv2d_nchw data weight stride padding dilation out_dtype
topi.nn.pool2d data kernel stride dilation padding pool_type ceil_mode layout count_include_pad
topi.nn.softmax x axis
topi.full shape dtype fill_value
topi.arange start stop step dtype
topi.meshgrid a_tuple indexing
topi.one_hot indices on_value off_value depth axis dtype
topi.sequence_mask data valid_length mask_value axis
topi.tile a reps
topi.repeat a repeats axis
topi.flip a axis
topi.reverse_sequence a seq_lengths seq_axis batch_axis
topi.strided_slice a begin end strides axes slice_mode
topi.strided_set a v begin end strides
topi.sliding_window data axis window_shape strides
topi.gather_nd data indices batch_dims
topi.cumsum data axis dtype exclusive
topi.einsum subscripts operands
topi.sort data axis is_ascend
topi.argsort data valid_count axis is_ascend dtype
topi.topk data k axis ret_type is_ascend dtype
topi.searchsorted sorted_sequence values right dtype
topi.scatter data indices updates axis
topi.scatter_add data indices updates axis
topi.scatter_elements data indices updates axis reduction
topi.scatter_nd data indices updates mode
topi.sparse_to_dense sparse_indices output_shape sparse_values default_value
topi.sparse_reshape sparse_indices prev_shape new_shape new_sparse_indices_shape new_shape_shape
topi.sparse_fill_empty_rows sparse_indices sparse_values dense_shape default_value new_sparse_indices_shape
topi.scanop data binop identity_value op_name axis dtype exclusive
topi.nn.conv2d_winograd_weight_transform kernel tile_size
topi.nn.conv2d_winograd_nchw_without_weight_transform data weight strides padding dilation out_dtype
topi.nn.conv2d_winograd_nhwc_without_weight_transform data weight strides padding dilation out_dtype
topi.nn.winograd_transform_matrices tile_size kernel_size out_dtype
topi.nn.dense_pack data weight bias out_dtype
topi.unique data is_sorted return_counts
topi.argwhere output_shape condition
topi.tensordot a b axes
topi.expand_like a shape_like axis
topi.dynamic_strided_slice a begin end strides output_shape
topi.image.affine_grid data target_shape
topi.image.grid_sample data grid method layout padding_mode align_corners
topi.image.dilation2d_nchw input filter stride padding dilations out_dtype
topi.image.crop_and_resize data boxes box_indices crop_size layout method extrapolation_value out_dtype
topi.nn.lstm Xs Wi Wh Bi Bh h_init c_init proj p_i p_f p_o f_act g_act h_act reverse weight_layout
topi.nn.deformable_conv2d_nchw data offset kernel strides padding dilation deformable_groups groups out_dtype
topi.nn.correlation_nchw data1 data2 kernel_size max_displacement stride1 stride2 padding is_multiply
topi.nn.nll_loss predictions targets weights reduction ignore_index
topi.nn.pool_grad grads data kernel stride padding pool_type ceil_mode layout count_include_pad
topi.nn.depthwise_conv2d_backward_input_nhwc Filter Out_grad oshape ishape stride padding
topi.nn.depthwise_conv2d_backward_weight_nhwc Input Out_grad oshape fshape stride padding
topi.nn.bitpack data bits pack_axis bit_axis pack_type name
topi.nn.bitserial_dense data weight data_bits weight_bits pack_dtype out_dtype unipolar
topi.nn.bitserial_conv2d_nchw data kernel stride padding activation_bits weight_bits pack_dtype out_dtype unipolar
topi.nn.sparse_dense dense_data sparse_data sparse_indices sparse_indptr sparse_lhs
topi.nn.sparse_transpose sparse_data sparse_indices sparse_indptr
topi.sparse.csrmv a x y
topi.sparse.csrmm a b c
topi.sparse.dense data weight bias
topi.random.threefry_generate gen out_shape
topi.random.threefry_split gen
topi.random.uniform gen low high out_shape out_dtype
topi.random.normal gen mean scale out_shape out_dtype
topi.vision.get_valid_counts data score_threshold id_index score_index
topi.vision.non_max_suppression data valid_count indices max_output_size iou_threshold force_suppress top_k
topi.vision.all_class_non_max_suppression boxes scores max_output_boxes_per_class iou_threshold score_threshold
topi.vision.rcnn.roi_align_nchw data rois pooled_size spatial_scale mode sample_ratio
topi.vision.rcnn.roi_pool_nchw data rois pooled_size spatial_scale
topi.vision.ssd.multibox_prior data sizes ratios steps offsets clip
topi.vision.ssd.multibox_transform_loc cls_prob loc_pred anchor clip threshold variances
topi.concatenate a_tuple axis
topi.take a indices axis batch_dims mode
topi.gather data axis indices
topi.reshape a newshape
topi.squeeze a axis
topi.split ary indices_or_sections axis
topi.argmax data axis keepdims select_last_index
topi.argmin data axis keepdims select_last_index
topi.collapse_sum data target_shape
topi.dft re_data im_data inverse
topi.stft data n_fft hop_length win_length window normalized onesided output_shape
topi.fixed_point_multiply x multiplier shift
topi.fixed_point_multiply_per_axis x y lshift rshift is_lshift_required is_rshift_required axes
topi.nn.matmul tensor_a tensor_b bias out_dtype transpose_a transpose_b
topi.nn.batch_matmul tensor_a tensor_b oshape out_dtype transpose_a transpose_b
topi.nn.batch_norm data gamma beta moving_mean moving_var axis epsilon center scale training momentum
topi.nn.conv inp filt stride padding dilation groups data_layout kernel_layout out_dtype
topi.nn.conv1d data kernel strides padding dilation data_layout kernel_layout out_dtype
topi.nn.conv1d_ncw data kernel strides padding dilation out_dtype
topi.nn.conv1d_nwc data kernel strides padding dilation out_dtype
topi.nn.group_conv1d_ncw data kernel strides padding dilation groups out_dtype
topi.nn.group_conv1d_nwc data kernel strides padding dilation groups out_dtype
topi.nn.conv2d_winograd_nchw data weight strides padding dilation out_dtype pre_computed
topi.nn.fifo_buffer data buffer axis
topi.nn.simulated_quantize data out_dtype output_scale output_zero_point axis
topi.nn.simulated_dequantize data in_dtype input_scale input_zero_point axis
topi.nn.sparse_conv2d dense_data sparse_data sparse_indices sparse_indptr layout kernel_size
topi.nn.upsampling3d data scale_d scale_h scale_w layout method coordinate_transformation_mode
topi.image.dilation2d_nhwc input filter stride padding dilations out_dtype
topi.random.multinomial gen probs num_samples
topi.vision.rcnn.proposal cls_prob bbox_pred im_info scales ratios feature_stride threshold rpn_pre_nms_top_n
topi.nn.depth_to_space data block_size layout mode
topi.nn.space_to_batch_nd data block_shape pad_before pad_after pad_value
topi.nn.batch_to_space_nd data block_shape crop_begin_list crop_end_list
topi.nn.dilate data strides dilation_value
topi.nn.mirror_pad data pad_before pad_after mode
"""
"""Names with their parameters in TVM's order; more may follow here."""


class Row(NamedTuple):
    """One name of the page, with what its row says."""

    name: str
    here: str
    note: str


def rows() -> list[Row]:
    """Every name in the first column of the tables of three columns."""
    found = []
    for line in TEXT.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| `") and len(cells) == 3:
            names, here, note = cells
            found += [Row(name, here, note.strip("| ")) for name in re.findall(r"`([^`]+)`", names)]
    return found


ROWS = rows()


@cache
def objects() -> dict[str, Any]:
    """What the names on the page begin with."""
    A, state = te.placeholder((4, 5), name="A"), te.placeholder((4, 5), name="state")
    axis = te.reduce_axis((0, 5), "k")
    C = te.compute((4,), lambda i: te.sum(A[i, axis], axis=axis), name="C", attrs={"note": 1})
    E = te.extern((4,), [C], lambda values, out: None, name="E")
    init = te.compute((1, 5), lambda t, i: A[t, i], name="init")
    S = te.scan(init, te.compute((4, 5), lambda t, i: state[t - 1, i] + 1, name="update"), state, name="S")
    s = te.create_schedule(C.op)
    lowered = tvm.lower(s, [A, C])
    f = tvm.build(s, [A, C], target="interpreter")
    return {"tvm": tvm, "te": te, "tir": tir, "A": A, "C": C, "E": E, "S": S, "s": s, "axis": axis, "f": f,
            "lowered": lowered, "topi": topi}  # fmt: skip


def value(name: str) -> Any:
    """The object that a name of the page stands for; `sch.x` is found on a schedule or on a stage."""
    owner, _, attribute = name.rpartition(".")
    if owner != "sch":
        return eval(name, dict(objects()))
    s, C = objects()["s"], objects()["C"]
    return getattr(s, attribute) if hasattr(s, attribute) else getattr(s[C], attribute)


@pytest.mark.parametrize("row", [r for r in ROWS if r.here == "same"], ids=lambda r: r.name)
def test_what_is_the_same_is_there(row: Row) -> None:
    value(row.name)


@pytest.mark.parametrize("row", [r for r in ROWS if r.here != "same"], ids=lambda r: r.name)
def test_what_is_missing_says_what_to_do(row: Row) -> None:
    assert row.here == "–" and row.note
    with pytest.raises(AttributeError) as caught:
        value(row.name)
    message = str(caught.value)
    assert row.name.rpartition(".")[2] in message
    assert message.replace("`", "").endswith(
        f": TVM has it, tensorlang does not; {row.note.replace('`', '')}; see {PAGE}"
    )


@pytest.mark.parametrize(
    ("prefix", "names"),
    [("te.", TE), ("tir.", TIR), ("s.", SCHEDULE), ("s[C].", STAGE)],
    ids=["te", "tir", "s", "s[C]"],
)
def test_every_name_of_tvm_is_on_the_page(prefix: str, names: str) -> None:
    listed = {row.name for row in ROWS}
    assert [name for name in names.split() if prefix + name not in listed] == []


@pytest.mark.parametrize("line", PARAMETERS.split("\n")[1:-1])
def test_parameters_come_in_the_order_of_tvm(line: str) -> None:
    name, *wanted = line.split()
    found = [p for p in inspect.signature(eval(name, dict(objects()))).parameters if p != "self"]
    assert found[: len(wanted)] == wanted


def test_no_name_is_listed_twice() -> None:
    names = [row.name for row in ROWS]
    assert len(names) > 400
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_every_refusal_is_on_the_page() -> None:
    from tensorlang.names import _absent
    from tensorlang.schedule.names import ABSENT

    listed = {row.name.rpartition(".")[2] for row in ROWS if row.here != "same"}
    assert [name for name in ABSENT if name not in listed] == []
    assert [f"{owner}.{name}" for owner, names in _absent.items() for name in names if name not in listed] == []


def test_an_own_attribute_error_of_a_property_is_kept() -> None:
    from tensorlang.names import Explained

    class Half(Explained):
        @property
        def other(self) -> int:
            raise AttributeError("there is one half only")

    with pytest.raises(AttributeError, match=r"^there is one half only$"):
        _ = Half().other
    with pytest.raises(AttributeError, match=r"^'Half' object has no attribute 'third'$"):
        _ = Half().third  # type: ignore[attr-defined]


def test_expression_classes_build_and_recognise() -> None:
    x, y = tir.Var("x", "float32"), tir.Var("y", "float32")
    i, j = tir.Var("i"), tir.Var("j")
    made = {
        tir.Add: "x + y", tir.Sub: "x - y", tir.Mul: "x * y", tir.Div: "x / y", tir.Min: "min(x, y)",
        tir.Max: "max(x, y)", tir.EQ: "x == y", tir.NE: "x != y", tir.LT: "x < y", tir.LE: "x <= y", tir.GT: "x > y",
        tir.GE: "x >= y",
    }  # fmt: skip
    for cls, text in made.items():
        node = cls(x, y)
        assert str(node) == text and [other for other in made if isinstance(node, other)] == [cls]
        assert str(node.a) == "x" and str(node.b) == "y"
    assert str(tir.FloorDiv(i, j)) == "i // j" and str(tir.FloorMod(i, j)) == "i % j"
    assert isinstance(tir.Div(i, j), tir.Div) and isinstance(tir.Mod(i, j), tir.Mod)
    assert isinstance(tir.And(i < j, i < 3), tir.And) and isinstance(tir.Or(i < j, i < 3), tir.Or)
    assert isinstance(tir.Not(i < j), tir.Not) and not isinstance(~i, tir.Not)
    assert isinstance(tir.Cast("int8", x), tir.Cast) and isinstance(tir.Select(x > 1, x, 0), tir.Select)
    assert isinstance(tir.Select(condition=x > 1, true_value=x, false_value=0), tir.Select)
    assert isinstance(objects()["C"].op.body[0], tir.Reduce) and isinstance(tir.exp(x), tir.Call)
    with pytest.raises(tvm.DefinitionError, match="Not needs a condition, got i of dtype int32"):
        tir.Not(i)


def test_names_of_operators() -> None:
    i, j = tir.Var("i"), tir.Var("j")
    assert str(te.add(i, 1)) == "i + 1" and str(te.subtract(i, j)) == "i - j" and str(te.multiply(2, i)) == "2 * i"
    assert str(tir.bitwise_and(i, j)) == "i & j" and str(tir.bitwise_or(i, j)) == "i | j"
    assert str(tir.bitwise_xor(i, j)) == "i ^ j" and str(tir.bitwise_not(i)) == str(~i)


def test_axes_in_classic_words() -> None:
    k, thread = te.reduce_axis(te.Range.from_min_extent(2, 5), "k"), te.thread_axis("threadIdx.x")
    assert (str(k.dom.min), str(k.dom.extent), k.iter_type) == ("2", "5", tir.IterVar.CommReduce)
    assert (thread.iter_type, thread.thread_tag) == (tir.IterVar.ThreadIndex, "threadIdx.x")
    assert objects()["C"].op.axis[0].iter_type == tir.IterVar.DataPar


def test_constant_extents_are_numbers() -> None:
    constant: Any
    symbolic: Any
    constant, symbolic = te.placeholder((4, te.var("n")), name="A").shape
    assert int(constant) == 4
    with pytest.raises(TypeError):
        int(symbolic)
