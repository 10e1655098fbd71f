"""Programs that several tests make operators of."""

from __future__ import annotations

from typing import Any

import tensorlang
from tensorlang import te, topi
from tensorlang.runtime.executable import Executable

N, M, K = 6, 4, 5


def layer() -> list[Any]:
    """gelu(x w' + b)."""
    x, w, b = te.placeholder((N, K), name="x"), te.placeholder((M, K), name="w"), te.placeholder((M,), name="b")
    z = topi.dense(x, w)
    return [x, w, b, topi.gelu(te.compute((N, M), lambda i, j: z[i, j] + b[j], name="biased"))]


def built(tensors: list[Any], name: str, *sizes: Any) -> Executable:
    """The kernel of inputs and outputs, as the library schedules it."""
    kernel: Executable = tensorlang.build(tensors, [*sizes, *tensors], schedule="default", name=name)
    return kernel
