"""The OpenCL device that tests run on; they are skipped where there is none."""

from __future__ import annotations

from typing import Any

import pytest

from tensorlang.errors import MissingDependency
from tensorlang.target.opencl import runtime
from tensorlang.target.opencl.runtime import OpenclDevice


@pytest.fixture(scope="session")
def device() -> OpenclDevice:
    """The device that target "opencl" means."""
    try:
        found = runtime.devices()
    except MissingDependency as error:
        pytest.skip(str(error))
    if not found:
        pytest.skip("no OpenCL driver: pip install intel-opencl-rt intel-cmplr-lib-rt, or apt install pocl-opencl-icd")
    return found[0]


@pytest.fixture
def queue(device: OpenclDevice) -> Any:
    """The queue that calls use."""
    return runtime.own_queue(device)
