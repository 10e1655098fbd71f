"""What is at the root is in memory that all threads share, whatever its scope: they wait for each other there, too."""

from __future__ import annotations

import numpy as np
import pytest

import tensorlang
from tensorlang import te


@pytest.mark.parametrize("scope", ["local", "warp", "global"])
def test_threads_that_update_together_wait_for_the_start(scope: str) -> None:
    k = te.reduce_axis((0, 2), "k")
    made = te.compute((6, 3), lambda i, j: te.prod(k.var.astype("int8") + 1, axis=k), name="T")
    s = te.create_schedule(made.op)
    s.cache_write("T", scope)
    s["T"].bind("i", te.thread_axis("blockIdx.x"))
    held = s[f"T.{scope}"]
    held.atomic()
    held.bind("k", te.thread_axis("threadIdx.z"))
    held.reorder("i", "j", "k")
    held.bind("i", te.thread_axis("blockIdx.x"))
    held.bind("j", te.thread_axis("threadIdx.x"))
    run = tensorlang.build(s, [made], target="interpreter")
    assert "barrier of the block" in run.source()
    out = np.zeros((6, 3), np.int8)
    run(out)
    assert (out == 2).all()
