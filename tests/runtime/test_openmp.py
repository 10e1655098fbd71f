"""The OpenMP runtime: found, quiet, and safe after a fork."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tensorlang.runtime import openmp

_ROOT = Path(__file__).parents[2]

_KERNEL = """
import os, sys
import numpy as np
from tensorlang.ir.construct import array, indices, loop, store
from tensorlang.ir.stmt import Kernel, LoopKind
from tensorlang.runtime import openmp, threads
from tensorlang.target.backend import backend
from tensorlang.target.detect import parse
(i,) = indices("i")
out = array("out", (100,), "int64")
body = loop(i, 0, 100, store(out, i, i), LoopKind.PARALLEL)
f = backend("llvm").compile(Kernel("fill", (out,), (), ("out",), body), parse("llvm -num-cores=2"))
def check():
    values = np.zeros(100, np.int64)
    f(values)
    assert (values == np.arange(100)).all()
"""


def _python(code: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _KERNEL + code]
    return subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_every_symbol_has_an_address() -> None:
    found = openmp.addresses(1)
    assert set(found) == set(openmp.SYMBOLS)
    assert all(found.values())
    assert openmp.available()


@pytest.mark.skipif(sys.platform != "linux", reason="fork is how Linux makes worker processes")
def test_a_forked_child_runs_serially_instead_of_hanging() -> None:
    done = _python("""
check()
child = os.fork()
if child == 0:
    check()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
check()
""")
    assert done.returncode == 0, done.stderr


def test_without_a_library_loops_run_serially() -> None:
    done = _python("""
openmp._find = lambda: ("/nonexistent/libgomp.so", False)
openmp._opened.cache_clear()
threads.set_limit(1)
check()
assert not openmp.available()
""")
    assert done.returncode == 0, done.stderr


def test_the_environment_is_left_alone() -> None:
    done = _python("""
before = dict(os.environ)
check()
assert dict(os.environ) == before and openmp.available()
""")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("chosen", "spins"), [({}, 10000), ({"GOMP_SPINCOUNT": "77"}, 77)])
def test_threads_that_wait_spin_for_a_bounded_time_unless_the_user_chose(chosen: dict[str, str], spins: int) -> None:
    kept = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    done = _python("check()", {**kept, "OMP_DISPLAY_ENV": "verbose", **chosen})  # libgomp prints its settings
    assert done.returncode == 0, done.stderr
    assert f"GOMP_SPINCOUNT = '{spins}'" in done.stderr
