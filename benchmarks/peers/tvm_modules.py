"""TVM: the ONNX models through Relax, with the schedules that it has, or tuned by MetaSchedule.

`TVM_TRIALS` trials for each workload; `TVM_TUNING_DIR` keeps the records, and those that are there are used.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

from benchmarks.peers.onnx_graphs import GRAPHS, model
from benchmarks.peers.serve import Array, Call, Given, Unsupported

PRODUCTS = ("matmul", "dense_gelu", "conv2d", "attention")
TRIALS = int(os.environ.get("TVM_TRIALS", "0"))


def build(operator: str, given: Given) -> Call:
    """A virtual machine that runs the tuned module."""
    if operator in PRODUCTS and not TRIALS:
        raise Unsupported("its untuned loops take a hundred times as long; see TVM_TRIALS")
    made, fed = model(operator, given)
    cpu = tvm.target.codegen.llvm_get_system_cpu()
    target = tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": given.threads})
    module = from_onnx(made, keep_params_in_input=False)
    module = tuned(module, target) if TRIALS else relax.get_pipeline("zero")(module)
    machine = relax.VirtualMachine(relax.build(module, target), tvm.cpu())
    machine.set_input("main", *(tvm.runtime.tensor(array) for array in fed.values()))

    def call() -> Any:
        machine.invoke_stateful("main")
        return machine

    return call


def tuned(module: Any, target: Any) -> Any:
    """The module with the best schedules of its records, which are made first if there are none."""
    text = f"{module.script()} {target} {TRIALS}"
    folder = Path(os.environ.get("TVM_TUNING_DIR") or tempfile.mkdtemp(), hashlib.sha256(text.encode()).hexdigest())
    records = folder / "database_tuning_record.json"
    if records.exists() and records.stat().st_size:
        module = relax.get_pipeline("zero")(module)
        with target:
            return relax.transform.MetaScheduleApplyDatabase(str(folder))(module)
    folder.mkdir(parents=True, exist_ok=True)
    tuning = relax.get_pipeline("static_shape_tuning", target=target, total_trials=TRIALS, work_dir=str(folder))
    return tuning(module)


def to_numpy(machine: Any) -> Array:
    """The output of the last run."""
    return np.asarray(machine.get_outputs("main").numpy())


BUILDERS = {name: partial(build, name) for name in GRAPHS}
