"""tensorlang: tensor expressions with proven schedules and an autotuner.

Programs written for classic te run after `import tensorlang as tvm` and `from tensorlang import te`. Every name below
is imported when it is first used, so `import tensorlang` is light.
"""

from typing import Any

from tensorlang.names import listing, lookup, offer, refuse

offer(
    "tensorlang",
    {
        **{room: f"tensorlang.{room}" for room in ("autotune", "errors", "nd", "runtime", "target", "te", "testing")},
        **{room: f"tensorlang.{room}" for room in ("tir", "topi")},
        "__version__": "tensorlang.version:VERSION",
        "build": "tensorlang.driver:build",
        "lower": "tensorlang.driver:lower",
        "convert": "tensorlang.te.convert:convert",
        "cpu": "tensorlang.nd:cpu",
        "device": "tensorlang.nd:device",
        "get_global_func": "tensorlang.te.packed:get_global_func",
        "register_func": "tensorlang.te.packed:register_func",
        "DefinitionError": "tensorlang.errors:DefinitionError",
        "ScheduleError": "tensorlang.errors:ScheduleError",
        "TargetError": "tensorlang.errors:TargetError",
        "TensorlangError": "tensorlang.errors:TensorlangError",
    },
)
offer(
    "tensorlang.te",
    {
        "create_schedule": "tensorlang.schedule:create_schedule",
        "create_prim_func": "tensorlang.driver:create_prim_func",
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
offer("tensorlang.te.tensor_intrin", {"OWN": "tensorlang.target.llvm.instructions:OWN"})
offer(
    "tensorlang.tir",
    {
        "Broadcast": "tensorlang.te.machine:broadcast",
        "Evaluate": "tensorlang.te.machine:evaluate",
        "call_extern": "tensorlang.te.machine:call_extern",
        "call_intrin": "tensorlang.te.machine:call_intrin",
        "call_llvm_intrin": "tensorlang.te.machine:call_llvm_intrin",
        "call_llvm_pure_intrin": "tensorlang.te.machine:call_llvm_intrin",
        "decl_buffer": "tensorlang.te.tile_buffer:decl_buffer",
        "ir_builder": "tensorlang.te.ir_builder",
        "reinterpret": "tensorlang.te.machine:reinterpret",
        "stmt_seq": "tensorlang.te.machine:stmt_seq",
    },
)
offer("tensorlang.runtime", {"convert": "tensorlang.te.convert:convert"})

_NO_GPU = "GPU targets are not there yet; use the CPU (target='llvm') or target='interpreter'"
_TUNER = "use tensorlang.autotune, or the command `tensorlang tune`"
_GRAPH = "tensorlang has operators, not graphs; write the operator in te"
refuse(
    "tensorlang",
    {
        **dict.fromkeys(("cuda", "gpu", "rocm", "opencl", "metal", "vulkan"), _NO_GPU),
        **dict.fromkeys(("autotvm", "auto_scheduler", "meta_schedule"), _TUNER),
        **dict.fromkeys(("relay", "relax"), _GRAPH),
        "IRModule": "tensorlang.lower(s, args) returns the loop nest, tensorlang.build(s, args) an executable",
        "contrib": "kernels take NumPy arrays and DLPack tensors as they are",
        "ir": "te.Range and the expression classes are in tensorlang.te",
        "rpc": "kernels run in this process, tuning in local worker processes",
        "script": "write the program in te and schedule it",
    },
)
refuse(
    "tensorlang.te",
    {
        "extern_primfunc": "use te.extern with a Python function",
        "trace": "use te.extern with a Python function that prints",
    },
)
refuse("tensorlang.tir", {"Schedule": "use te.create_schedule", "PrimFunc": "use tensorlang.lower(s, args)"})


def __getattr__(name: str) -> Any:
    return lookup(__name__, name)


def __dir__() -> list[str]:
    return listing(__name__)
