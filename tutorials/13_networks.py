# %% [markdown]
# # A whole network: read, compiled, tuned, shipped
#
# A model of ONNX becomes one program, that program is cut into kernels, and each of them is scheduled, proven and built
# like any other. Reading needs the onnx package: `pip install 'tensorlang[onnx]'`.

# %%
import json
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import tensorlang

if not find_spec("onnx"):
    print("onnx: not installed")
    raise SystemExit

# %% [markdown]
# ## 1. A model
#
# Yours comes from a file. This one is a small CNN with random weights: a convolution, a block with a residual, a pool
# and a classifier.

# %%
import onnx
from onnx import helper, numpy_helper

rng = np.random.default_rng(0)


def weights(*shape: int) -> np.ndarray:
    """Random numbers that keep what goes through them about as large as it was."""
    fan = int(np.prod(shape[1:])) if len(shape) > 1 else 16
    return np.asarray(rng.standard_normal(shape) * (2 / fan) ** 0.5, np.float32)


held = {
    "stem": weights(16, 3, 3, 3),
    "first": weights(16, 16, 3, 3),
    "second": weights(16, 16, 3, 3),
    **dict.fromkeys(("gain", "spread"), np.ones(16, np.float32)),
    **dict.fromkeys(("shift", "mean"), np.zeros(16, np.float32)),
    "classes": weights(10, 16),
}
image = helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, (1, 3, 32, 32))
nodes = [
    helper.make_node("Conv", ["image", "stem"], ["s"], "stem", pads=[1, 1, 1, 1], strides=[2, 2]),
    helper.make_node("BatchNormalization", ["s", "gain", "shift", "mean", "spread"], ["n"], "norm"),
    helper.make_node("Relu", ["n"], ["a"], "relu0"),
    helper.make_node("Conv", ["a", "first"], ["b"], "first", pads=[1, 1, 1, 1]),
    helper.make_node("Relu", ["b"], ["c"], "relu1"),
    helper.make_node("Conv", ["c", "second"], ["d"], "second", pads=[1, 1, 1, 1]),
    helper.make_node("Add", ["d", "a"], ["e"], "residual"),
    helper.make_node("Relu", ["e"], ["f"], "relu2"),
    helper.make_node("GlobalAveragePool", ["f"], ["g"], "pool"),
    helper.make_node("Flatten", ["g"], ["h"], "flat"),
    helper.make_node("Gemm", ["h", "classes"], ["scores"], "classifier", transB=1),
]
graph = helper.make_graph(
    nodes,
    "small_cnn",
    [image],
    [helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, (1, 10))],
    [numpy_helper.from_array(array, name) for name, array in held.items()],
)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), "small_cnn.onnx")

# %% [markdown]
# ## 2. The report comes first
#
# What the model is made of, and what of it is not taken, with reasons: before anything is compiled. `tensorlang inspect
# small_cnn.onnx` prints it.

# %%
report = tensorlang.inspect("small_cnn.onnx")
print(
    f"{report.name}, opset {report.opset}: {len(nodes)} nodes, {report.kernels} kernels; not taken: {report.refusals}"
)
for row in report.rows[:2]:
    print(f"{row.op}: {row.nodes} nodes, {row.operations / 1e6:.2f} million operations")

# %% [markdown]
# ## 3. Compiled
#
# The batch norm is in the weights of its convolution, relu and residual are in the tiles of theirs, images have their
# channels last between kernels, and what kernels pass on shares one block of memory.

# %%
model = tensorlang.compile("small_cnn.onnx")
print(model, model.memory())
x = rng.standard_normal((1, 3, 32, 32)).astype(np.float32)
scores = model(x)

if find_spec("onnxruntime"):
    import onnxruntime

    (wanted,) = onnxruntime.InferenceSession("small_cnn.onnx").run(None, {"image": x})
    print("equal to onnxruntime:", bool(np.allclose(scores, wanted, rtol=1e-4, atol=1e-5)))
else:
    from onnx.reference import ReferenceEvaluator

    (wanted,) = ReferenceEvaluator("small_cnn.onnx").run(None, {"image": x})
    print("equal to the reference of onnx:", bool(np.allclose(scores, wanted, rtol=1e-4, atol=1e-5)))

# %% [markdown]
# ## 4. Where the time goes
#
# Each kernel with its node, and beside its time what this machine would take at least. The trace is for
# https://ui.perfetto.dev.

# %%
for kernel in model.profile(x, roofline=True, trace="small_cnn.json"):
    assert kernel.limit is not None
    print(
        f"{kernel.op:<18} {kernel.node:<11} {kernel.seconds * 1e6:7.1f} µs  {kernel.share:.2f} of {kernel.limit.binds}"
    )
slices = json.loads(Path("small_cnn.json").read_text())["traceEvents"]
print(f"small_cnn.json has {sum(s['ph'] == 'X' and s['cat'] != 'run' for s in slices)} slices")

# %% [markdown]
# ## 5. Tuned
#
# One budget for all kernels: it goes where it lowers the time of a run most. A tuned kernel is taken where it is faster
# in the network, by turns with the one that it would replace. In earnest it is `model.tune(seconds=600)`, and records
# go to the default store, where `tensorlang.compile` finds them.

# %%
tuned = model.tune(x, trials=4, log="small_cnn.jsonl")
print(f"{tuned.trials} trials of {sum(kernel.trials > 0 for kernel in tuned.kernels)} kernels")
print("not slower than before:", tuned.after <= tuned.before)
print("still equal:", bool(np.allclose(model(x), wanted, rtol=1e-4, atol=1e-5)))

# %% [markdown]
# ## 6. In fewer bits
#
# Products become sums of bytes, with ranges of arrays from samples that are like the inputs to come: here random ones,
# of yours a folder of .npy files or an iterator. The report has what each layer loses, in dB, the worst first; those
# that lose too much are kept in floats by their names. `tensorlang quantize small_cnn.onnx --data folder` prints it.

# %%
samples = [np.asarray(rng.standard_normal((1, 3, 32, 32)), np.float32) for _ in range(8)]
network = tensorlang.from_onnx("small_cnn.onnx")
quantized = tensorlang.quantize(network, samples, method="percentile", keep=["stem"])
for layer in tensorlang.layer_errors(network, quantized, samples):
    print(f"{layer.node:<12}{layer.op:<8}more than 20 dB: {layer.own > 20}, exact: {layer.own == float('inf')}")
small = tensorlang.compile(quantized)
error = float(np.abs(small(x) - wanted).max() / np.abs(wanted).max())
print("within a tenth of floats:", error < 0.1)
print("weights take less than half:", small.memory().weights < 0.5 * model.memory().weights)

# %% [markdown]
# ## 7. Shipped
#
# A library with all kernels and one function that calls them, a header, and the weights: for C, and without Python. The
# format "c" adds a program that runs the library on `check`, and compares.

# %%
made = model.export("out/small_cnn", formats=("so", "a", "h", "c"), check=[x, wanted])
print(*sorted(path.name for path in made.files.values()))
print(
    next(line for line in Path("out/small_cnn.h").read_text().splitlines() if line.startswith("int32_t small_cnn_run("))
)
if shutil.which("cc"):
    command = ["cc", "-O1", "small_cnn_test.c", "small_cnn.a", "-lm", "-o", "small_cnn_test"]
    subprocess.run(command, cwd="out", check=True)
    told = subprocess.run(["./small_cnn_test", ".", "0"], cwd="out", check=True, capture_output=True, text=True).stdout
    print(f"C: {told.strip()}")

# %% [markdown]
# The library is a model again wherever tensorlang is, without the file that it came from.

# %%
again = tensorlang.load(made.files["so"])
print("loaded:", bool(np.array_equal(again(x), model(x))))
