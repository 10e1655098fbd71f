"""IREE: the ONNX models, compiled for the CPU of this machine; arrays stay in its own memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import iree.compiler
import iree.runtime
import numpy as np
from iree.compiler.extras import onnx_importer
from iree.compiler.ir import Context

from benchmarks.peers.onnx_graphs import GRAPHS, model
from benchmarks.peers.serve import Array, Call, Given

FLAGS = ("--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3", "--iree-opt-data-tiling")


def build(operator: str, given: Given) -> Call:
    """A module with one function."""
    made, fed = model(operator, given)
    config = iree.runtime.Config("local-sync" if given.threads == 1 else "local-task")
    code = iree.compiler.compile_str(
        mlir(made), input_type="onnx", target_backends=["llvm-cpu"], extra_args=list(FLAGS)
    )
    module = iree.runtime.VmModule.copy_buffer(config.vm_instance, code)
    function = iree.runtime.load_vm_module(module, config)[operator]
    arrays = [iree.runtime.asdevicearray(config.device, array) for array in fed.values()]
    return lambda: function(*arrays)


def mlir(made: Any) -> str:
    """The model in the form that the compiler reads."""
    with Context() as context:
        info = onnx_importer.ModelInfo(made)
        module = info.create_module(context=context).operation
        onnx_importer.NodeImporter.define_function(info.main_graph, module).import_all()
        text: str = module.get_asm()
    return text


def to_numpy(result: Any) -> Array:
    """The output, copied out."""
    return np.asarray(result.to_host())


BUILDERS = {name: partial(build, name) for name in GRAPHS}
