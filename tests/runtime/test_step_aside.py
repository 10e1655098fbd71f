"""A helper that was woken on the CPU of its caller moves to another one, within what the caller may use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parent.parent.parent
_CODE = """
import os
import numpy as np
import tensorlang
from tensorlang import te

A = te.placeholder((64,), name="A")
B = te.compute((64,), lambda i: A[i] + 1.0, name="B")
s = te.create_schedule(B)
s[B].parallel("i")
kernel = tensorlang.build(s, [A, B], target="llvm -num-cores=2")
a, b = np.zeros(64, "f4"), np.empty(64, "f4")
before = set(os.listdir("/proc/self/task"))
kernel(a, b)
(helper,) = (int(task) for task in set(os.listdir("/proc/self/task")) - before)
first, second = sorted(os.sched_getaffinity(0))[:2]

def meet(allowed):
    # The helper's CPUs after calls that found it on the first CPU, where the caller was too, most likely.
    for _ in range(200):
        os.sched_setaffinity(0, {first})
        os.sched_setaffinity(0, allowed)
        os.sched_setaffinity(helper, {first})
        kernel(a, b)
        if os.sched_getaffinity(helper) != {first}:
            break
    return os.sched_getaffinity(helper)

assert meet({first}) == {first}
assert meet({first, second}) == {second}
assert (b == 1).all()
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or len(os.sched_getaffinity(0)) < 2, reason="needs Linux and two CPUs"
)
def test_a_helper_leaves_its_callers_cpu() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CODE], cwd=_ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
