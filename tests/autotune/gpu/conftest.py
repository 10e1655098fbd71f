"""The OpenCL device that tests measure on; they are skipped where there is none."""

from __future__ import annotations

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
        pytest.skip("no OpenCL driver is installed")
    return found[0]
