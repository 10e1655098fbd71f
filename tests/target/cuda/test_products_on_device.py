"""Programs on tensor cores, scheduled by hand, on a CUDA device."""

from __future__ import annotations

import pytest

from tensorlang.target import parse
from tensorlang.target.backend import backend
from tests.device_targets import needs_cuda, needs_instructions_of
from tests.target.cuda.tensor_core_gemm import GroupProduct, arrays, kernel
from tests.target.cuda.test_tensor_cores import CASES, check

pytestmark = list(needs_cuda)


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    p = CASES[name]
    needs_instructions_of("sm_90a" if isinstance(p, GroupProduct) else "sm_89" if "float8" in p.dtype else "sm_80")
    given, wanted = arrays(p)
    backend("cuda").compile(kernel(p), parse("cuda"))(*given.values())
    check(p, list(given.values())[-1], wanted)
