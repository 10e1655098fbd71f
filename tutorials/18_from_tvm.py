# %% [markdown]
# # A file of TVM, ported
#
# This is how the tutorial of TVM 0.9 on optimising a product on a CPU was written, with its packing and its cache of
# writes. Two lines are different: the imports. [docs/from_tvm.md](../docs/from_tvm.md) has every name, and what is not
# there.

# %%
import numpy as np

import tensorlang as tvm  # was: import tvm
from tensorlang import te  # was: from tvm import te

M = K = N = 256
dtype, target, bn = "float32", "llvm", 32
dev = tvm.device(target, 0)
a = tvm.nd.array(np.random.rand(M, K).astype(dtype), dev)
b = tvm.nd.array(np.random.rand(K, N).astype(dtype), dev)
answer = np.dot(a.numpy(), b.numpy())

# %% [markdown]
# ## The algorithm
#
# B is packed by a stage of its own, as TVM's tutorial does it.

# %%
k = te.reduce_axis((0, K), "k")
A = te.placeholder((M, K), name="A")
B = te.placeholder((K, N), name="B")
packedB = te.compute((N // bn, K, bn), lambda bigN, k, littleN: B[k, bigN * bn + littleN], name="packedB")
C = te.compute(
    (M, N),
    lambda m, n: te.sum(A[m, k] * packedB[n // bn, k, tvm.tir.indexmod(n, bn)], axis=k),
    name="C",
)

# %% [markdown]
# ## The schedule
#
# Line by line as it was. What was a promise in TVM is a proof here: a `parallel` in the wrong place is refused.

# %%
s = te.create_schedule(C.op)
CC = s.cache_write(C, "global")
mo, no, mi, ni = s[C].tile(C.op.axis[0], C.op.axis[1], bn, bn)
s[CC].compute_at(s[C], no)
mc, nc = s[CC].op.axis
(kaxis,) = s[CC].op.reduce_axis
ko, ki = s[CC].split(kaxis, factor=4)
s[CC].reorder(ko, mc, ki, nc)
s[CC].vectorize(nc)
s[CC].unroll(ki)
s[C].parallel(mo)
bigN, _, littleN = s[packedB].op.axis
s[packedB].vectorize(littleN)
s[packedB].parallel(bigN)

func = tvm.build(s, [A, B, C], target=target, name="mmult")
c = tvm.nd.array(np.zeros((M, N), dtype=dtype), dev)
func(a, b, c)
tvm.testing.assert_allclose(c.numpy(), answer, rtol=1e-5)
evaluator = func.time_evaluator(func.entry_name, dev, number=10)
print(f"equal to NumPy; timed: {evaluator(a, b, c).mean > 0}")

# %% [markdown]
# ## What is new
#
# `tvm.lower(s, ..., simple_mode=True)` prints the loops. And what TVM accepted and computed wrongly says so:

# %%
print(tvm.lower(s, [A, B, C], simple_mode=True))
try:
    s[CC].parallel(ko)
except tvm.TVMError as error:
    print(str(error).splitlines()[0].partition("   ")[0])

# %% [markdown]
# ## What has no equal
#
# Relay, TIR schedules and RPC are not here; a name that is missing says what to do instead.

# %%
try:
    tvm.relay  # type: ignore[attr-defined]  # noqa: B018
except AttributeError as error:
    print(error)
