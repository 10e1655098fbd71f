"""tensorlang: tensor expressions with proven schedules and an autotuner.

Programs written for classic te run after `import tensorlang as tvm` and `from tensorlang import te`. Every name below
is imported when it is first used, so `import tensorlang` is light.
"""

import sys
from typing import TYPE_CHECKING, Any

from tensorlang.names import OfferedModules, advise, listing, lookup, offer, refuse

if TYPE_CHECKING:  # what is offered below, for type checkers and editors
    from tensorlang import autotune as autotune
    from tensorlang import errors as errors
    from tensorlang import gguf as gguf
    from tensorlang import ir as ir
    from tensorlang import nd as nd
    from tensorlang import networks as networks
    from tensorlang import runtime as runtime
    from tensorlang import target as target
    from tensorlang import te as te
    from tensorlang import testing as testing
    from tensorlang import tir as tir
    from tensorlang import topi as topi
    from tensorlang.classic import contrib as contrib
    from tensorlang.classic import error as error
    from tensorlang.classic import settings
    from tensorlang.classic.data_type import DataType as DataType
    from tensorlang.driver import build as build
    from tensorlang.driver import lower as lower
    from tensorlang.errors import ArgumentError as ArgumentError
    from tensorlang.errors import DefinitionError as DefinitionError
    from tensorlang.errors import KernelError as KernelError
    from tensorlang.errors import RecordError as RecordError
    from tensorlang.errors import ScheduleError as ScheduleError
    from tensorlang.errors import TargetError as TargetError
    from tensorlang.errors import TensorlangError as TensorlangError
    from tensorlang.export.loading import load as load
    from tensorlang.frameworks.function import kernel as kernel
    from tensorlang.nd import cpu as cpu
    from tensorlang.nd import cuda as cuda
    from tensorlang.nd import device as device
    from tensorlang.nd import gpu as gpu
    from tensorlang.nd import opencl as opencl
    from tensorlang.networks.dynamic import compile_dynamic as compile_dynamic
    from tensorlang.networks.onnx.reading import from_onnx as from_onnx
    from tensorlang.networks.quantization import Quantization as Quantization
    from tensorlang.networks.quantizing.bfloat16 import to_bfloat16 as to_bfloat16
    from tensorlang.networks.quantizing.errors import layer_errors as layer_errors
    from tensorlang.networks.quantizing.static import quantize as quantize
    from tensorlang.networks.quantizing.weights import quantize_weights as quantize_weights
    from tensorlang.networks.report import inspect as inspect
    from tensorlang.networks.starting import compile_model
    from tensorlang.networks.torch.modules import from_torch as from_torch
    from tensorlang.runtime.threads import threads as threads
    from tensorlang.te import arith as arith
    from tensorlang.te.convert import convert as convert
    from tensorlang.te.packed import get_global_func as get_global_func
    from tensorlang.te.packed import register_func as register_func
    from tensorlang.version import VERSION

    __version__ = VERSION
    autotvm = auto_scheduler = autotune
    compile = compile_model  # noqa: A001
    context = device
    ndarray = nd
    transform = settings
    TVMError = TensorlangError

if not any(isinstance(finder, OfferedModules) for finder in sys.meta_path):
    sys.meta_path.insert(0, OfferedModules())

offer(
    "tensorlang",
    {
        **{
            room: f"tensorlang.{room}"
            for room in ("autotune", "errors", "ir", "nd", "networks", "runtime", "target", "te", "testing")
        },
        **{room: f"tensorlang.{room}" for room in ("gguf", "tir", "topi")},
        "DataType": "tensorlang.classic.data_type:DataType",
        "arith": "tensorlang.te.arith",
        "contrib": "tensorlang.classic.contrib",
        "transform": "tensorlang.classic.settings",
        **dict.fromkeys(("autotvm", "auto_scheduler"), "tensorlang.autotune"),
        "Quantization": "tensorlang.networks.quantization:Quantization",
        "__version__": "tensorlang.version:VERSION",
        "build": "tensorlang.driver:build",
        "compile": "tensorlang.networks.starting:compile_model",
        "compile_dynamic": "tensorlang.networks.dynamic:compile_dynamic",
        "from_onnx": "tensorlang.networks.onnx.reading:from_onnx",
        "from_torch": "tensorlang.networks.torch.modules:from_torch",
        "inspect": "tensorlang.networks.report:inspect",
        "layer_errors": "tensorlang.networks.quantizing.errors:layer_errors",
        "load": "tensorlang.export.loading:load",
        "kernel": "tensorlang.frameworks.function:kernel",
        "lower": "tensorlang.driver:lower",
        "quantize": "tensorlang.networks.quantizing.static:quantize",
        "quantize_weights": "tensorlang.networks.quantizing.weights:quantize_weights",
        "convert": "tensorlang.te.convert:convert",
        **{name: f"tensorlang.nd:{name}" for name in ("cpu", "cuda", "device", "gpu", "opencl")},
        "get_global_func": "tensorlang.te.packed:get_global_func",
        "context": "tensorlang.nd:device",
        "error": "tensorlang.classic.error",
        "ndarray": "tensorlang.nd",
        "register_func": "tensorlang.te.packed:register_func",
        "threads": "tensorlang.runtime.threads:threads",
        "to_bfloat16": "tensorlang.networks.quantizing.bfloat16:to_bfloat16",
        **{
            name: f"tensorlang.errors:{name}"
            for name in (
                "ArgumentError",
                "DefinitionError",
                "KernelError",
                "RecordError",
                "ScheduleError",
                "TargetError",
            )
        },
        "TVMError": "tensorlang.errors:TensorlangError",
        "TensorlangError": "tensorlang.errors:TensorlangError",
    },
)
offer(
    "tensorlang.te",
    {
        "Schedule": "tensorlang.schedule:Schedule",
        "Stage": "tensorlang.schedule:Stage",
        "create_schedule": "tensorlang.schedule:create_schedule",
        "create_prim_func": "tensorlang.driver:create_prim_func",
        "schedule": "tensorlang.schedule",
        "tensor": "tensorlang.te.operation",
    },
)
offer(
    "tensorlang.te",
    {
        "decl_buffer": "tensorlang.te.tile_buffer:decl_buffer",
        "decl_tensor_intrin": "tensorlang.te.tensor_intrin:decl_tensor_intrin",
        "intrin": "tensorlang.te.tensor_intrin:intrin",
    },
)
offer("tensorlang.schedule.schedule", {"warnings_of_schedule": "tensorlang.profiling.unmeasured:warnings_of_schedule"})
offer("tensorlang.te.program", {"program_html": "tensorlang.te.page:program_html"})
offer(
    "tensorlang.te.operation",
    {"elementwise": "tensorlang.topi.broadcast:elementwise", "tensor_html": "tensorlang.te.page:tensor_html"},
)
offer(
    "tensorlang.topi",
    {
        "image": "tensorlang.topi",
        "nn": "tensorlang.classic.nn",
        "tag": "tensorlang.classic.tags",
        **{room: f"tensorlang.topi.{room}" for room in ("random", "sparse", "vision")},
        **dict.fromkeys(
            ("adreno", "arm_cpu", "bifrost", "cuda", "generic", "gpu", "hls", "intel_graphics", "mali", "x86"),
            "tensorlang.classic.schedules",
        ),
        **dict.fromkeys(("math", "tensor"), "tensorlang.topi"),
        "InvalidShapeError": "tensorlang.classic.constants:InvalidShapeError",
        **{
            name: f"tensorlang.classic.constants:{name}"
            for name in ("get_pad_tuple", "get_pad_tuple1d", "get_pad_tuple3d", "get_pad_tuple_generic")
        },
        "testing": "tensorlang.classic.references",
        "utils": "tensorlang.classic.constants",
    },
)
_IN_TRANSFORM = (
    "adv_index arange broadcast_to dynamic_strided_slice flip gather gather_nd invert_permutation matrix_set_diag "
    "meshgrid ndarray_size one_hot repeat reverse_sequence sequence_mask shape sliding_window sparse_to_dense stack "
    "strided_set strided_slice take tile trilu unravel_index where"
)
offer("tensorlang.topi.transform", {name: f"tensorlang.topi:{name}" for name in _IN_TRANSFORM.split()})
offer("tensorlang.topi.sparse", {"utils": "tensorlang.classic.sparse_data"})
offer("tensorlang.classic.nn", {"utils": "tensorlang.classic.constants", "pooling": "tensorlang.topi.pooling"})
offer("tensorlang.classic.schedules", {"depthwise_conv2d": "tensorlang.classic.schedules"})
offer(
    "tensorlang.classic.contrib",
    {
        "cblas": "tensorlang.classic.contrib.blas",
        "cc": "tensorlang.classic.contrib.linked",
        "clang": "tensorlang.classic.contrib.c_code",
        "dlpack": "tensorlang.classic.contrib.dlpack",
        "nvcc": "tensorlang.classic.contrib.nvcc",
        "pickle_memoize": "tensorlang.classic.contrib.remembered",
        "sparse": "tensorlang.topi.sparse",
        "utils": "tensorlang.classic.contrib.folders",
    },
)
offer(
    "tensorlang.topi.vision",
    {"nms": "tensorlang.topi.vision", "rcnn": "tensorlang.topi.vision", "ssd": "tensorlang.topi.vision"},
)
_CONTEXTS = ("ApplyConfig", "ApplyFixedConfig", "FallbackContext")
_OF_TOPI = ("register_topi_compute", "register_topi_schedule")
offer(
    "tensorlang.autotune.task",
    {
        "create": "tensorlang.autotune.templates.task:create",
        **dict.fromkeys(("dispatcher", "task", "topi_integration"), "tensorlang.autotune.task"),
        "space": "tensorlang.autotune.templates.config",
        "get_config": "tensorlang.autotune.templates.registry:get_config",
        "template": "tensorlang.autotune.templates.registry:template",
        **{word: f"tensorlang.autotune.templates.contexts:{word}" for word in _CONTEXTS},
        **{word: f"tensorlang.autotune.templates.operators:{word}" for word in _OF_TOPI},
    },
)
offer(
    "tensorlang.autotune",
    {
        "DropletTuner": "tensorlang.autotune.tuners.droplet:DropletTuner",
        "FallbackContext": "tensorlang.autotune.templates.contexts:FallbackContext",
        "LocalRPCMeasureContext": "tensorlang.autotune.tuners.measure:LocalRPCMeasureContext",
        "apply_fixed_config": "tensorlang.autotune.templates.contexts:ApplyFixedConfig",
        "auto_schedule": "tensorlang.autotune.search_task:auto_schedule",
        **{word: f"tensorlang.autotune.templates.operators:{word}" for word in _OF_TOPI},
    },
)
offer(
    "tensorlang.autotune",
    {
        "_ffi_api": "tensorlang.autotune.policy",
        "loop_state": "tensorlang.autotune.dag",
        "measure": "tensorlang.autotune.tuners.measure",
        "record": "tensorlang.autotune.record",
    },
)
offer("tensorlang.autotune.tuners.own", {"SearchTask": "tensorlang.autotune.search_task:SearchTask"})
offer(
    "tensorlang.autotune.tuner",
    {
        "DropletTuner": "tensorlang.autotune.tuners.droplet:DropletTuner",
        "GATuner": "tensorlang.autotune.tuners.genetic:GATuner",
        "GridSearchTuner": "tensorlang.autotune.tuners.index:GridSearchTuner",
        "RandomTuner": "tensorlang.autotune.tuners.index:RandomTuner",
        "Tuner": "tensorlang.autotune.tuners.tuner:Tuner",
        "XGBTuner": "tensorlang.autotune.tuners.learned:XGBTuner",
        "callback": "tensorlang.autotune.callback",
        **dict.fromkeys(("ga_tuner", "index_based_tuner", "tuner", "xgboost_tuner"), "tensorlang.autotune.tuner"),
    },
)
offer(
    "tensorlang.runtime.executable",
    {
        "jax_function": "tensorlang.frameworks.jax_op:jax_function",
        "profile": "tensorlang.profiling:profile",
        "torch_operator": "tensorlang.frameworks.torch_op:torch_operator",
        "warnings_of": "tensorlang.profiling:warnings_of",
    },
)
offer("tensorlang.export.loading", {"network_of_library": "tensorlang.networks.loading:network_of_library"})
offer("tensorlang.schedule.history", {"STORE": "tensorlang.autotune.context:STORE"})
offer(
    "tensorlang.te.tensor_intrin",
    {"OWN": "tensorlang.target.instructions:OWN", "declarer": "tensorlang.target.instructions:declarer"},
)
offer(
    "tensorlang.tir",
    {
        "Buffer": "tensorlang.te.tile_buffer:TileBuffer",
        "Broadcast": "tensorlang.te.machine:broadcast",
        "Evaluate": "tensorlang.te.machine:evaluate",
        "call_intrin": "tensorlang.te.machine:call_intrin",
        "CallEffectKind": "tensorlang.te.lowering_rules:CallEffectKind",
        "ScheduleError": "tensorlang.errors:ScheduleError",
        "StringImm": "builtins:str",
        "call_llvm_intrin": "tensorlang.te.machine:call_llvm_intrin",
        "call_llvm_pure_intrin": "tensorlang.te.machine:call_llvm_intrin",
        "decl_buffer": "tensorlang.te.tile_buffer:decl_buffer",
        "ir_builder": "tensorlang.te.ir_builder",
        "q_multiply_shift": "tensorlang.te.fixed_point:q_multiply_shift",
        "q_multiply_shift_per_axis": "tensorlang.te.fixed_point:q_multiply_shift_per_axis",
        "reinterpret": "tensorlang.te.machine:reinterpret",
        "stmt_seq": "tensorlang.te.machine:stmt_seq",
    },
)
offer("tensorlang.ir", {"PrimExpr": "tensorlang.ir.expr:Expr"})
offer(
    "tensorlang.runtime",
    {
        "DataType": "tensorlang.classic.data_type:DataType",
        "Module": "tensorlang.runtime.executable:Executable",
        "String": "builtins:str",
        "NDArray": "tensorlang.nd:NDArray",
        "load_module": "tensorlang.export.loading:load",
        "const": "tensorlang.te.machine:const",
        "enabled": "tensorlang.nd:enabled",
        "convert": "tensorlang.te.convert:convert",
        "device": "tensorlang.nd:device",
        "ndarray": "tensorlang.nd",
        "release_scratch": "tensorlang.runtime.threads:release_scratch",
    },
)

_OTHER_GPUS = "GPUs are the targets 'cuda' and 'opencl', and their devices tensorlang.cuda(0) and tensorlang.opencl(0)"
_ON_THREADS = "bind a reduce axis to threads, s[T].pipeline(n) copies ahead, and tensorize runs matrix instructions"
_TUNER = "use tensorlang.autotune, or the command `tensorlang tune`"
_NETWORKS = "tensorlang.from_onnx and tensorlang.from_torch read networks, tensorlang.compile compiles one"
_RUNS = "what tensorlang.compile returns is called with arrays: y = model(x)"
_TASKS = "model.tune(seconds=...) tunes the kernels of what tensorlang.compile(network) returned"
_TARGET = "name the target by text, as in Target('llvm -mcpu=haswell')"
_WORKERS = "use DaskRunner('dask://host:port'), a Dask scheduler, and a `tensorlang worker` for every device"
_NO_LIBRARY = "f.export('out/name') writes a library, an object and a header for C and all that calls C"
refuse(
    "tensorlang",
    {
        **dict.fromkeys(("rocm", "metal", "vulkan", "hexagon", "webgpu"), _OTHER_GPUS),
        "meta_schedule": _TUNER,
        **dict.fromkeys(("relay", "relax"), _NETWORKS),
        "IRModule": "tensorlang.lower(s, args) returns the loop nest, tensorlang.build(s, args) an executable",
        "instrument": "TENSORLANG_LOG=passes times the passes, TENSORLANG_DUMP=folder writes every stage",
        "rpc": "kernels run in this process; tuning on other machines is autotune.DaskRunner('dask://host:port')",
        "script": "write the program in te, or as a Python function with te.hybrid.script",
    },
)
_PASSES = "the passes are fixed; settings are environment variables, listed in docs/reference.md"
refuse(
    "tensorlang.classic.settings",
    dict.fromkeys(("Sequential", "function_pass", "module_pass", "prim_func_pass"), _PASSES),
)
refuse(
    "tensorlang.classic.contrib",
    {
        **dict.fromkeys(("cublas", "cudnn", "mkl", "random"), "use te.extern with a Python function"),
        **dict.fromkeys(("graph_executor", "graph_runtime"), _RUNS),
    },
)
refuse(
    "tensorlang.autotune",
    {
        **dict.fromkeys(("apply_graph_best", "extract_tasks", "graph_tuner"), _TASKS),
        "tophub": "records are in your own logs; `tensorlang log import` reads its logs of x86 CPUs",
        **dict.fromkeys(("RPCRunner", "RPCTracker"), _WORKERS),
    },
)
refuse(
    "tensorlang.te",
    {
        "AXIS_SEPARATOR": "arrays have one flat memory; give transform_layout the indices alone",
        "SpecializedCondition": "use partition or split(..., tail='peel'), or build a kernel per size",
        "TensorComputeOp": "declare the computation with te.compute and use tensorize",
        "extern_primfunc": "use te.extern with a Python function, or te.hybrid.script",
        "tag": "use te.tag_scope",
        "trace": "use te.extern with a Python function that prints",
    },
)
_STATEMENTS = (
    "Allocate AllocateConst AssertStmt AttrStmt Block BlockRealize BufferLoad BufferRealize BufferRegion BufferStore "
    "DeclBuffer For ForKind IfThenElse Let LetStmt MatchBufferRegion Prefetch ProducerRealize ProducerStore SeqStmt "
    "Stmt While stmt_list"
)
_INTRINSICS_OF_GPUS = (
    "create_barriers mma_fill mma_store ptx_arrive_barrier ptx_arrive_barrier_expect_tx ptx_commit_group ptx_cp_async "
    "ptx_cp_async_barrier ptx_cp_async_bulk ptx_init_barrier_thread_count ptx_ldmatrix ptx_mma ptx_mma_sp "
    "ptx_wait_barrier ptx_wait_group tvm_bmma_sync tvm_fill_fragment tvm_load_matrix_sync tvm_mma_sync "
    "tvm_store_matrix_sync tvm_thread_allreduce"
)
_RUNTIME_CALLS = (
    "TVMBackendAllocWorkspace TVMBackendFreeWorkspace call_cpacked call_cpacked_lowered call_packed_lowered call_tir "
    "isnullptr lookup_param ret tvm_check_return tvm_stack_alloca tvm_stack_make_array tvm_stack_make_shape "
    "tvm_struct_get tvm_struct_set tvm_throw_last_error tvm_tuple undef"
)
_VECTORS = "vectors are made by s[C].vectorize, and in an intrinsic by vload, vstore and tir.Broadcast"
refuse(
    "tensorlang.tir",
    {
        **dict.fromkeys(
            _STATEMENTS.split(), "write statements with te.hybrid.script, in an intrinsic with tir.ir_builder"
        ),
        **dict.fromkeys(_INTRINSICS_OF_GPUS.split(), _ON_THREADS),
        **dict.fromkeys(
            _RUNTIME_CALLS.split(), "kernels check their arguments and call no runtime; te.extern calls Python"
        ),
        **dict.fromkeys(("Ramp", "Shuffle", "vectorcombine", "vectorhigh", "vectorlow", "vscale"), _VECTORS),
        **dict.fromkeys(
            ("address_of", "tvm_access_ptr", "type_annotation"), "use access_ptr of a tile in an intrinsic"
        ),
        **dict.fromkeys(
            ("BijectiveLayout", "Layout", "bijective_layout", "layout", "IndexMap"),
            "s[C].transform_layout takes the mapping as a Python function",
        ),
        **dict.fromkeys(
            ("BlockDependenceInfo", "BlockScope", "ScheduleState", "StmtSRef"),
            "s.explain() shows the dependences, s.state is the immutable state",
        ),
        **dict.fromkeys(
            ("analysis", "stmt_functor", "transform", "usmp"),
            "loop IR is internal; tensorlang.ir.expr.walk visits the nodes of an expression",
        ),
        **dict.fromkeys(("end_profile_intrinsic", "start_profile_intrinsic"), "time a kernel with its time_evaluator"),
        "CommReducer": "use te.comm_reducer",
        "DataProducer": "use te.Tensor",
        "PrimFunc": "use tensorlang.lower(s, args)",
        "Schedule": "use te.create_schedule",
        "TensorIntrin": "use te.decl_tensor_intrin",
        "assume": "state facts about an index array with s.assume",
        "nextafter": "use te.extern with numpy.nextafter",
        "schedule": "use te.create_schedule",
        "trace": "use te.extern with a Python function that prints",
    },
)
_SCHEDULES = "topi.schedule schedules any program"
_AHEAD = "weights are laid out ahead by topi.winograd_pack, topi.conv2d_pack and topi.pack_weight"
_SCRIPT = "topi.vision.non_max_suppression suppresses; write others as te.hybrid.script"

refuse(
    "tensorlang.topi",
    {
        "generic_func": _SCHEDULES,
        **dict.fromkeys(("conv2d_gemm_weight_transform", "conv3d_winograd_weight_transform"), _AHEAD),
    },
)
refuse("tensorlang.topi.vision", {"regular_non_max_suppression": _SCRIPT})
refuse(
    "tensorlang.classic.schedules",
    dict.fromkeys(
        ("conv2d_avx_1x1", "conv2d_avx_common", "mprofile", "tensor_intrin"),
        "topi.schedule schedules for every target; instructions are te.intrin",
    ),
)
refuse(
    "tensorlang.runtime",
    {
        "PackedFunc": "functions are Python functions, named by tensorlang.register_func",
    },
)
offer("tensorlang.ir", {name: f"tensorlang.te.saved:{name}" for name in ("load_json", "save_json")})
_WORDS = ("Range", "assert_structural_equal", "structural_equal", "structural_hash")
offer("tensorlang.ir", {name: f"tensorlang.te.classic:{name}" for name in _WORDS})
offer("tensorlang.ir", {"Array": "builtins:tuple", "Map": "builtins:dict", "container": "tensorlang.ir"})
offer("tensorlang.te", {"ScanOp": "tensorlang.te.classic:ScanOp"})
_RULES = ("register_intrin_lowering", "register_op_attr")
offer("tensorlang.ir", {name: f"tensorlang.te.lowering_rules:{name}" for name in _RULES})
refuse(
    "tensorlang.ir",
    {
        "IRModule": "tensorlang.lower(s, args) returns the loop nest, tensorlang.build(s, args) an executable",
    },
)
offer("tensorlang.nd", {"context": "tensorlang.nd:device"})
offer("tensorlang.target", {"create": "tensorlang.target:Target", "cuda": "tensorlang.target.cuda"})
refuse(
    "tensorlang.target",
    {
        **dict.fromkeys(("rocm", "mali", "bifrost", "intel_graphics"), _OTHER_GPUS),
        **dict.fromkeys(("arm_cpu", "riscv_cpu"), _TARGET),
        "current": "use Target.current(), or pass the target to tensorlang.build",
    },
)
refuse(
    "Executable",
    {
        **dict.fromkeys(("get_lib", "import_module"), _NO_LIBRARY),
    },
)
refuse(
    "Lowered",
    {
        **dict.fromkeys(("body", "buffer_map", "params"), "print it, or look at its kernel"),
    },
)
refuse(
    "ExternOp",
    dict.fromkeys(("body", "input_placeholders", "output_placeholders"), "its function takes whole arrays"),
)


_NO_VALUES = "a tensor is declared, and has no values: the function that tensorlang.build returns fills arrays"
_NUMPY = "kernels take NumPy arrays, and CPU tensors of PyTorch and JAX, as they are"
advise(
    "Tensor",
    {
        **dict.fromkeys(("asnumpy", "cpu", "cuda", "data", "item", "numpy", "to", "tolist"), _NO_VALUES),
        **dict.fromkeys(("T", "permute", "swapaxes"), "use topi.transpose(A)"),
        **dict.fromkeys(("dot", "matmul", "mm"), "use topi.matmul(A, B)"),
        "cat": "use topi.concatenate([A, B])",
        "float": "use A.astype('float32')",
        "size": "its extents are A.shape",
        "to_numpy": _NO_VALUES,
        "type": "use A.astype",
        "unsqueeze": "use topi.expand_dims(A, axis)",
        "view": "use topi.reshape(A, shape)",
    },
)
advise(
    "tensorlang.topi",
    {
        **dict.fromkeys(("dot", "gemm", "mm"), "use topi.matmul"),
        "bmm": "use topi.batch_matmul",
        "cat": "use topi.concatenate",
        "linear": "use topi.dense",
        "permute": "use topi.transpose",
        "scaled_dot_product_attention": "use topi.attention",
        "unsqueeze": "use topi.expand_dims",
        "view": "use topi.reshape",
    },
)
advise(
    "tensorlang.te",
    {
        **dict.fromkeys(
            ("float16", "float32", "float64", "int8", "int32", "int64"), "dtypes are text, as in 'float32'"
        ),
        "Func": "use te.compute(shape, lambda i, j: ...)",
        "RDom": "use te.reduce_axis((0, n))",
        "input": "use te.placeholder",
        "where": "use te.select or te.if_then_else",
    },
)
advise(
    "tensorlang",
    {
        **dict.fromkeys(("array", "asarray", "empty", "ones", "zeros"), _NUMPY),
        "Tensor": "use te.Tensor; te.placeholder and te.compute declare one",
        "autotuner": "use tensorlang.autotune",
        "jit": "use tensorlang.build(s, args), or the decorator tensorlang.kernel",
        "tensor": "use te.placeholder(shape), or a NumPy array for a kernel's argument",
    },
)
_TIMED = "use f.time_evaluator()(*arrays).mean, in seconds"
advise(
    "Executable",
    {
        **dict.fromkeys(("bench", "benchmark", "time", "timeit"), _TIMED),
        **dict.fromkeys(("asm", "ptx", "llvm", "ir"), "use f.source('asm'); f.source_forms names all"),
        **dict.fromkeys(("launch", "run"), "call it: f(*arrays)"),
        "save_lib": "use f.export('out/name')",
    },
)


if not TYPE_CHECKING:  # a type checker knows what there is

    def __getattr__(name: str) -> Any:
        return lookup(__name__, name)


def __dir__() -> list[str]:
    return listing(__name__)
