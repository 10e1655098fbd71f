"""The names of CuPy that tensorlang uses are there, in the CuPy that is installed; this needs no GPU."""

from __future__ import annotations

from typing import Any

import pytest

from tests.target.cuda.fake_cupy import ATTRIBUTES, FakeCupy

cupy: Any = pytest.importorskip("cupy", reason="no CuPy: pip install 'tensorlang[cuda]'")

FACE = FakeCupy().cuda
PARTS = ("runtime", "driver", "memory", "function")
PATHS = [
    *(f"cuda.{name}" for name in vars(FACE)),
    *(f"cuda.{part}.{name}" for part in PARTS for name in vars(getattr(FACE, part))),
    *(f"cuda.runtime.cudaDevAttr{name}" for name in ATTRIBUTES),
    *(f"ndarray.{name}" for name in ("device", "data", "dtype", "shape", "strides", "nbytes", "view", "set", "get")),
    *(f"cuda.Stream.{name}" for name in ("from_external", "begin_capture", "end_capture", "record", "synchronize")),
    *(f"cuda.Device.{name}" for name in ("attributes", "compute_capability", "mem_info", "synchronize")),
    *(f"cuda.{name}" for name in ("Graph.launch", "Event.synchronize", "MemoryPointer.memset_async")),
    *("empty", "asarray", "from_dlpack"),
]
"""All that the fake has, by where CuPy has it."""


@pytest.mark.parametrize("path", PATHS)
def test_cupy_has_what_is_used_of_it(path: str) -> None:
    found: Any = cupy
    for name in path.split("."):
        found = getattr(found, name)


def test_constants_are_cupy_s() -> None:
    assert cupy.cuda.driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES == 8
    assert issubclass(cupy.cuda.runtime.CUDARuntimeError, RuntimeError)
    assert issubclass(cupy.cuda.memory.OutOfMemoryError, MemoryError)
