"""Programs of AutoTVM's and auto_scheduler's documentation, word for word but for sizes, trials and where logs are."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import numpy as np

import tensorlang as tvm
from tensorlang import auto_scheduler, autotvm, te
from tensorlang.testing import check_schedule
from tests.classic import convolutions


# Template from "Writing tunable templates and Using the Auto-tuner".
@autotvm.template("tutorial/matmul")
def matmul(N, L, M, dtype):  # type: ignore[no-untyped-def]
    A = te.placeholder((N, L), name="A", dtype=dtype)
    B = te.placeholder((L, M), name="B", dtype=dtype)

    k = te.reduce_axis((0, L), name="k")
    C = te.compute((N, M), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)

    # schedule
    y, x = s[C].op.axis
    k = s[C].op.reduce_axis[0]

    ##### define space begin #####
    cfg = autotvm.get_config()
    cfg.define_split("tile_y", y, num_outputs=2)
    cfg.define_split("tile_x", x, num_outputs=2)
    ##### define space end #####

    # schedule according to config
    yo, yi = cfg["tile_y"].apply(s, C, y)
    xo, xi = cfg["tile_x"].apply(s, C, x)

    s[C].reorder(yo, xo, k, yi, xi)

    return s, [A, B, C]


def test_autotvm(tmp_path: Path) -> None:
    log_file = str(tmp_path / "matmul.log")
    N, L, M = 16, 16, 16
    task = autotvm.task.create("tutorial/matmul", args=(N, L, M, "float32"), target="llvm")
    print(task.config_space)

    # logging config (for printing tuning log to the screen)
    logging.getLogger("autotvm").setLevel(logging.DEBUG)
    logging.getLogger("autotvm").addHandler(logging.StreamHandler(sys.stdout))

    # There are two steps for measuring a config: build and run.
    # By default, we use all CPU cores to compile program. Then measure them sequentially.
    # We measure 5 times and take average to reduce variance.
    measure_option = autotvm.measure_option(builder="local", runner=autotvm.LocalRunner(number=5))

    # Begin tuning with RandomTuner, log records to file `matmul.log`
    # You can use alternatives like XGBTuner.
    tuner = autotvm.tuner.RandomTuner(task)
    tuner.tune(
        n_trial=3,
        measure_option=measure_option,
        callbacks=[autotvm.callback.log_to_file(log_file)],
    )

    # apply history best from log file
    with autotvm.apply_history_best(log_file):  # noqa: SIM117 - as it is documented
        with tvm.target.Target("llvm"):
            s, arg_bufs = matmul(N, L, M, "float32")
            func = tvm.build(s, arg_bufs)

    # check correctness
    a_np = np.random.uniform(size=(N, L)).astype(np.float32)
    b_np = np.random.uniform(size=(L, M)).astype(np.float32)
    c_np = a_np.dot(b_np)

    c_tvm = tvm.nd.empty(c_np.shape)
    func(tvm.nd.array(a_np), tvm.nd.array(b_np), c_tvm)

    tvm.testing.assert_allclose(c_np, c_tvm.numpy(), rtol=1e-4)

    best = min((r for r in autotvm.read_log(log_file).records if r.ok), key=lambda r: r.median)
    assert s.trace.key == best.trace_key


# From "Optimizing Operators with Auto-scheduling".
@auto_scheduler.register_workload  # Note the auto_scheduler decorator
def documented_matmul_add(N, L, M, dtype):  # type: ignore[no-untyped-def]
    A = te.placeholder((N, L), name="A", dtype=dtype)
    B = te.placeholder((L, M), name="B", dtype=dtype)
    C = te.placeholder((N, M), name="C", dtype=dtype)

    k = te.reduce_axis((0, L), name="k")
    matmul = te.compute(
        (N, M),
        lambda i, j: te.sum(A[i, k] * B[k, j], axis=k),
        name="matmul",
        attrs={"layout_free_placeholders": [B]},  # enable automatic layout transform for tensor B
    )
    out = te.compute((N, M), lambda i, j: matmul[i, j] + C[i, j], name="out")

    return [A, B, C, out]


def test_auto_scheduler(tmp_path: Path) -> None:
    target = tvm.target.Target("llvm")
    N = L = M = 16
    task = tvm.auto_scheduler.SearchTask(func=documented_matmul_add, args=(N, L, M, "float32"), target=target)

    # Inspect the computational graph
    print("Computational DAG:")
    print(task.compute_dag)

    log_file = str(tmp_path / "matmul.json")
    tune_option = auto_scheduler.TuningOptions(
        num_measure_trials=3,
        measure_callbacks=[auto_scheduler.RecordToFile(log_file)],
        verbose=2,
    )

    # Run auto-tuning (search)
    task.tune(tune_option)
    # Apply the best schedule
    sch, args = task.apply_best(log_file)

    func = tvm.build(sch, args, target)
    a_np = np.random.uniform(size=(N, L)).astype(np.float32)
    b_np = np.random.uniform(size=(L, M)).astype(np.float32)
    c_np = np.random.uniform(size=(N, M)).astype(np.float32)
    out_np = a_np.dot(b_np) + c_np

    dev = tvm.cpu()
    a_tvm = tvm.nd.array(a_np, device=dev)
    b_tvm = tvm.nd.array(b_np, device=dev)
    c_tvm = tvm.nd.array(c_np, device=dev)
    out_tvm = tvm.nd.empty(out_np.shape, device=dev)
    func(a_tvm, b_tvm, c_tvm, out_tvm)

    # Check results
    np.testing.assert_allclose(out_np, out_tvm.numpy(), rtol=1e-3)

    # We can reload the best schedule from the log file
    print("Equivalent python schedule:")
    print(task.print_best(log_file))


# The template of "Tuning High Performance Convolution on NVIDIA GPUs" is in tests/classic.
def test_a_template_for_gpus_runs_on_the_interpreter() -> None:
    args = (1, 4, 4, 4, 2, 3, 3, 1)
    task = autotvm.task.create(convolutions.conv2d_no_batching, args=args, target="interpreter")
    assert len(task.config_space) == 10**3 * 3**3 * 3 * 2
    for index in (17, 81234):
        s, tensors = task.instantiate(task.config_space.get(index))
        check_schedule(s, tensors, targets=["interpreter"])
