"""auto_scheduler with a sketch rule, inputs and a runner of one's own, as tune_sparse_x86 and tests have them. Against TVM
0.14, the import lines alone differ.
"""

# mypy: ignore-errors
# ruff: noqa

import os
import tempfile
import numpy as np
import tensorlang as tvm
import tensorlang.testing
from tensorlang import te, topi, auto_scheduler, runtime
from tensorlang.auto_scheduler.measure import MeasureResult, MeasureInput, MeasureErrorNo
from tensorlang.auto_scheduler import _ffi_api
from tensorlang.topi.sparse.utils import random_bsr_matrix


@auto_scheduler.register_workload
def sparse_dense_bias(M, N, K, w_data_shape, w_indices_shape, w_indptr_shape, dtype):
    X = te.placeholder(shape=(M, K), dtype=dtype)
    W_data = te.placeholder(shape=w_data_shape, dtype=dtype)
    W_indices = te.placeholder(shape=w_indices_shape, dtype="int32")
    W_indptr = te.placeholder(shape=w_indptr_shape, dtype="int32")
    B = te.placeholder(shape=(M, N), dtype=dtype)
    out = topi.nn.sparse_dense(topi.nn.relu(X), W_data, W_indices, W_indptr)
    out = te.compute((M, N), lambda i, j: out[i, j] + B[i, j], name="BiasAdd")
    out = topi.nn.relu(out)
    return [X, W_data, W_indices, W_indptr, B, out]


M = 8
K = 64
N = 64
BS_R = 16
BS_C = 1
density = 0.6

X_np = np.random.randn(M, K).astype("float32")
X_np = np.maximum(np.zeros((M, K), dtype="float32"), X_np)
W_sp_np = random_bsr_matrix(N, K, BS_R, BS_C, density=density, dtype="float32")
W_np = W_sp_np.todense()
Y_np = X_np @ W_np.T
B_np = np.random.randn(M, N).astype("float32")
Y_np = Y_np + B_np
Y_np = np.maximum(np.zeros((M, N), dtype="float32"), Y_np)


def meet_condition_func(search_policy, state, stage_id):
    state = auto_scheduler.loop_state.State(state, search_policy.search_task.compute_dag)
    if state.stages[stage_id].op.tag in [
        "sparse_dense_sp_rhs_bsrmm",
        "sparse_dense_sp_rhs_bsrmm_block",
    ]:
        return auto_scheduler.PreloadCustomSketchRule.APPLY_AND_SKIP_REST
    return auto_scheduler.PreloadCustomSketchRule.PASS


def apply_func(search_policy, state, stage_id):
    ret = []
    s0 = auto_scheduler.loop_state.State(state, search_policy.search_task.compute_dag)
    if s0.stages[stage_id].op.tag == "sparse_dense_sp_rhs_bsrmm_block":
        return [s0.state_object, stage_id - 1]

    sparse_dense = s0.stages[stage_id].op
    sparse_dense_block = s0.stages[stage_id - 1].op
    assert sparse_dense.tag == "sparse_dense_sp_rhs_bsrmm"
    assert sparse_dense_block.tag == "sparse_dense_sp_rhs_bsrmm_block"

    # Set the default consumer of compute block
    consumer = sparse_dense

    # If sparse dense has a single elementwise consumer
    # We can compute inline the sparse_dense output stage
    consumers = _ffi_api.SearchPolicyUtilsGetConsumers(search_policy.search_task, s0.state_object, stage_id)
    if len(consumers) == 1:
        consumer_id = int(consumers.items()[0][0])
        if _ffi_api.SearchPolicyUtilsIsElementwiseMatch(
            search_policy.search_task, s0.state_object, stage_id, consumer_id
        ):
            consumer = s0.stages[consumer_id].op
            s0.compute_inline(sparse_dense)

    i, nb_j, j, row_offset, c = s0[sparse_dense_block].iters
    m, n = s0[consumer].iters
    i0, i1, i2 = s0.split(sparse_dense_block, i, [None, None])
    m0, m1 = s0.follow_split(consumer, m, len(s0.transform_steps) - 1, 1)
    j0, j1 = s0.split(sparse_dense_block, nb_j, [None])
    n0, n1 = s0.follow_split(consumer, n, len(s0.transform_steps) - 1, 1)
    s0.reorder(sparse_dense_block, [i0, j0, i1, j1, row_offset, i2, j, c])
    s0.reorder(consumer, [m0, n0, m1, n1])
    s0.compute_at(sparse_dense_block, consumer, n0)

    ret.append([s0.state_object, stage_id - 2])
    return ret


def test_a_sketch_rule_of_ones_own():
    target = tvm.target.Target("llvm")

    prefix = "sparse_dense_bsr_%d_%d_%d_%d_%d_%.2f_" % (N, K, BS_R, BS_C, W_sp_np.indices.shape[0], density)
    task = tvm.auto_scheduler.SearchTask(
        func=sparse_dense_bias,
        args=(M, N, K, W_sp_np.data.shape, W_sp_np.indices.shape, W_sp_np.indptr.shape, "float32"),
        target=target,
        task_inputs={
            prefix + "W_data": runtime.ndarray.array(W_sp_np.data),
            prefix + "W_indices": runtime.ndarray.array(W_sp_np.indices),
            prefix + "W_indptr": runtime.ndarray.array(W_sp_np.indptr),
        },
        task_inputs_save_to_file=True,
    )
    print("Computational DAG:")
    print(task.compute_dag)
    log_file = os.path.join(tempfile.mkdtemp(), "sparse_dense.json")
    tune_option = auto_scheduler.TuningOptions(
        num_measure_trials=3,
        measure_callbacks=[auto_scheduler.RecordToFile(log_file)],
        verbose=2,
    )
    search_policy = auto_scheduler.SketchPolicy(
        task,
        program_cost_model=auto_scheduler.XGBModel(),
        init_search_callbacks=[
            auto_scheduler.PreloadCustomSketchRule(meet_condition_func, apply_func, "SparseDense"),
        ],
    )
    task.tune(tune_option, search_policy)
    sch, args = task.apply_best(log_file)
    print("Lowered TIR:")
    print(tvm.lower(sch, args, simple_mode=True))
    func = tvm.build(sch, args, target)
    dev = tvm.cpu()
    X_tvm = tvm.nd.array(X_np, device=dev)
    W_data_tvm = tvm.nd.array(W_sp_np.data, device=dev)
    W_indices_tvm = tvm.nd.array(W_sp_np.indices, device=dev)
    W_indptr_tvm = tvm.nd.array(W_sp_np.indptr, device=dev)
    B_tvm = tvm.nd.array(B_np, device=dev)
    Y_tvm = tvm.nd.empty(Y_np.shape, device=dev)
    func(X_tvm, W_data_tvm, W_indices_tvm, W_indptr_tvm, B_tvm, Y_tvm)
    tvm.testing.assert_allclose(Y_np, Y_tvm.numpy(), atol=1e-4, rtol=1e-4)
    evaluator = func.time_evaluator(func.entry_name, dev, number=2)
    print(
        "Execution time of this operator: %.3f ms"
        % (np.median(evaluator(X_tvm, W_data_tvm, W_indices_tvm, W_indptr_tvm, B_tvm, Y_tvm).results) * 1000)
    )


@auto_scheduler.register_workload
def matmul_add_bias(N, L, M, dtype):
    A = te.placeholder((N, L), name="A", dtype=dtype)
    B = te.placeholder((L, M), name="B", dtype=dtype)
    C = te.placeholder((N, M), name="C", dtype=dtype)
    k = te.reduce_axis((0, L), name="k")
    matmul = te.compute(
        (N, M),
        lambda i, j: te.sum(A[i, k] * B[k, j], axis=k),
        name="matmul",
        attrs={"layout_free_placeholders": [B]},
    )
    out = te.compute((N, M), lambda i, j: matmul[i, j] + C[i, j], name="out")
    return [A, B, C, out]


class LoggedRunner(auto_scheduler.LocalRunner):
    """Counts what it runs, and repeats what failed."""

    calls = 0

    def run(self, measure_inputs, build_results, verbose=1):
        LoggedRunner.calls += len(measure_inputs)
        return super().run(measure_inputs, build_results, verbose)


target = tvm.target.Target("llvm")


def test_states_runners_and_records():
    task = auto_scheduler.SearchTask(func=matmul_add_bias, args=(32, 32, 32, "float32"), target=target)
    dag = task.compute_dag
    print(dag)
    print(task.compute_dag.flop_ct)
    hw = auto_scheduler.HardwareParams(num_cores=2, vector_unit_bytes=64, cache_line_bytes=64, target=target)
    task2 = auto_scheduler.SearchTask(
        func=matmul_add_bias, args=(32, 32, 32, "float32"), target=target, hardware_params=hw
    )
    assert task2.hardware_params.num_cores == 2

    # a state by hand
    s0 = dag.get_init_state()
    A, B, mm, C, out = dag.ops
    its = s0[mm].iters
    CL = s0.cache_write(mm, "local")
    i0, i1 = s0.split(mm, s0[mm].iters[0], [8])
    s0.vectorize(mm, s0[mm].iters[-1])
    s0.parallel(mm, i0)
    sch, tensors = dag.apply_steps_from_state(s0)
    print(dag.print_python_code_from_state(s0))
    print(dag.infer_bound_from_state(s0))

    inp = auto_scheduler.MeasureInput(task, s0)
    builder = auto_scheduler.LocalBuilder(timeout=60, n_parallel=1)
    runner = auto_scheduler.LocalRunner(timeout=60, number=2, repeat=1, min_repeat_ms=0, enable_cpu_cache_flush=False)
    bress = builder.build([inp])
    assert bress[0].error_no == 0, bress[0].error_msg
    mress = runner.run([inp], bress)
    assert mress[0].error_no == 0
    print(np.mean([float(x) for x in mress[0].costs]))
    log_file = os.path.join(tempfile.mkdtemp(), "matmul.json")
    tune_option = auto_scheduler.TuningOptions(
        num_measure_trials=4,
        num_measures_per_round=2,
        early_stopping=None,
        runner=LoggedRunner(timeout=60, number=2, repeat=1),
        builder=auto_scheduler.LocalBuilder(timeout=60),
        measure_callbacks=[auto_scheduler.RecordToFile(log_file)],
        verbose=0,
    )
    cost_model = auto_scheduler.RandomModel()
    policy = auto_scheduler.SketchPolicy(task, cost_model, params={"eps_greedy": 0.05}, verbose=0)
    task.tune(tune_option, search_policy=policy)
    assert LoggedRunner.calls >= 4
    sch, args = task.apply_best(log_file)
    print(task.print_best(log_file))

    inp, res = auto_scheduler.load_best_record(log_file, task.workload_key)
    print(inp.task.workload_key, inp.state, res.costs)
    for inp, res in auto_scheduler.RecordReader(log_file):
        assert isinstance(res.costs[0].value if hasattr(res.costs[0], "value") else res.costs[0], float)
    inputs, results = auto_scheduler.RecordReader(log_file).read_lines()
    assert len(inputs) >= 4
    with tempfile.NamedTemporaryFile() as fp:
        auto_scheduler.save_records(fp.name, inputs, results)
        log_reader = auto_scheduler.RecordReader(fp.name)
        assert len(log_reader.read_lines()[0]) == len(inputs)

    # resume
    policy = auto_scheduler.SketchPolicy(
        task,
        auto_scheduler.XGBModel(),
        init_search_callbacks=[auto_scheduler.PreloadMeasuredStates(log_file)],
    )
    tune_option = auto_scheduler.TuningOptions(
        num_measure_trials=5, measure_callbacks=[auto_scheduler.RecordToFile(log_file)], verbose=0
    )
    task.tune(tune_option, search_policy=policy)
    with auto_scheduler.ApplyHistoryBest(log_file):
        with tvm.target.Target("llvm"):
            sch, args = task.apply_best(log_file)
    tuner = auto_scheduler.TaskScheduler([task], [1], load_log_file=log_file)
