"""Products of 4-bit weights by other libraries, in this process: a turn over some matrices, and its bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from benchmarks.peers import ggml

Turn = Callable[[], object]
Made = tuple[Turn, int] | str
_BLOCK, _GROUP = 32, 128


def onnxruntime(m: int, n: int, k: int, matrices: int, threads: int) -> Made:
    """`MatMulNBits` of 4 bits in blocks of 32, data in bytes (accuracy level 4). Its threads do not spin."""
    try:
        import onnx
        import onnxruntime as ort
    except ImportError as error:
        return str(error)
    helper, rng = onnx.helper, np.random.default_rng(0)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    sessions, size = list[Any](), 0
    for _ in range(matrices):
        codes = rng.integers(0, 256, (n, k // _BLOCK, _BLOCK // 2), dtype=np.uint8)
        scales = rng.random(n * k // _BLOCK).astype(np.float32)
        size += codes.nbytes + scales.nbytes
        node = helper.make_node(
            "MatMulNBits", ["x", "codes", "scales"], ["y"], domain="com.microsoft",
            K=k, N=n, bits=4, block_size=_BLOCK, accuracy_level=4,
        )  # fmt: skip
        kind = onnx.TensorProto.FLOAT
        ends = (helper.make_tensor_value_info(name, kind, shape) for name, shape in (("x", [m, k]), ("y", [m, n])))
        given, made = ([end] for end in ends)
        arrays = [onnx.numpy_helper.from_array(codes, "codes"), onnx.numpy_helper.from_array(scales, "scales")]
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(helper.make_graph([node], "product", given, made, arrays), opset_imports=opsets)
        model.ir_version = 10
        text = model.SerializeToString()
        sessions.append(ort.InferenceSession(text, options, providers=["CPUExecutionProvider"]))
    x = rng.standard_normal((m, k)).astype(np.float32)
    return lambda: [session.run(None, {"x": x}) for session in sessions], size


def torch(m: int, n: int, k: int, matrices: int, threads: int) -> Made:
    """`aten::_weight_int4pack_mm_for_cpu`: 4 bits in groups of 128, data in bfloat16."""
    try:
        import torch as library
    except ImportError as error:
        return str(error)
    pack = getattr(library.ops.aten, "_convert_weight_to_int4pack_for_cpu", None)
    multiply = getattr(library.ops.aten, "_weight_int4pack_mm_for_cpu", None)
    if pack is None or multiply is None:
        return f"PyTorch {library.__version__} has no products of int4 on CPUs"
    library.set_num_threads(threads)
    packed = [pack(library.randint(0, 16, (n, k), dtype=library.int32), 1) for _ in range(matrices)]
    scales = [library.rand(k // _GROUP, n, 2).to(library.bfloat16) for _ in range(matrices)]
    x = library.randn(m, k).to(library.bfloat16)
    size = matrices * n * (k // 2 + k // _GROUP * 4)
    return lambda: [multiply(x, w, _GROUP, s) for w, s in zip(packed, scales, strict=True)], size


def openvino(group: int, m: int, n: int, k: int, matrices: int, threads: int) -> Made:
    """A product with 4-bit weights in groups in OpenVINO's CPU plugin, data in bytes by group."""
    try:
        import openvino as library
        from openvino import opset13 as ops
    except ImportError as error:
        return str(error)
    rng, groups = np.random.default_rng(0), k // group
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": group,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    requests, size = list[Any](), 0
    x = rng.standard_normal((m, k)).astype(np.float32)
    for _ in range(matrices):
        codes = rng.integers(0, 256, (n, k // 2), dtype=np.uint8)
        scales = rng.random((n, groups, 1)).astype(np.float16)
        size += codes.nbytes + scales.nbytes
        packed = library.Tensor(codes, [n, groups, group], library.Type.u4)
        middle = ops.convert(ops.constant(np.full((n, groups, 1), 8, np.uint8)), "f16")
        shifted = ops.subtract(ops.convert(ops.constant(packed), "f16"), middle)
        flat = ops.reshape(ops.multiply(shifted, ops.constant(scales)), ops.constant([n, k]), False)
        data = ops.parameter([m, k], np.float32)
        model = library.Model([ops.matmul(data, ops.convert(flat, "f32"), False, True)], [data])
        request = library.Core().compile_model(model, "CPU", settings).create_infer_request()
        request.set_input_tensor(library.Tensor(x))
        requests.append(request)
    return lambda: [request.infer() for request in requests], size


_GGML = ("q4_0", "q8_0", "q4_k", "mxfp4", "q2_k", "q6_k", "float32", "bfloat16")
PEERS: Mapping[str, Callable[[int, int, int, int, int], Made]] = {
    "onnxruntime": onnxruntime,
    **{f"openvino-{group}": partial(openvino, group) for group in (32, 128)},
    "torch": torch,
    **{f"ggml-{dtype}": partial(ggml.product, dtype) for dtype in _GGML},
}
"""By name: made for m vectors, n rows of k weights, some matrices and threads; or why it cannot be."""
