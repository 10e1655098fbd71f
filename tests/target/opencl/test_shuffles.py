"""Arrays in the registers of a warp on OpenCL: sub-groups of 32, where a device has them."""

from __future__ import annotations

import pytest

import tensorlang
from tensorlang.errors import TargetError
from tensorlang.target.c_source.dialect import SUB_GROUPS
from tensorlang.target.opencl import runtime
from tensorlang.target.opencl.runtime import OpenclDevice
from tensorlang.testing import check_schedule
from tests.warp_programs import PROGRAMS


def test_sub_groups_exchange_registers(device: OpenclDevice) -> None:
    if not device.extensions.issuperset(SUB_GROUPS):
        pytest.skip(f"{device} has no sub-groups of 32")
    for name in set(PROGRAMS) - {"lanes of two axes"}:
        s, args = PROGRAMS[name]()
        check_schedule(s, args, targets=("opencl",))


def test_a_device_without_sub_groups_is_told(device: OpenclDevice) -> None:
    without = [d for d in runtime.devices() if not d.extensions.issuperset(SUB_GROUPS)]
    if not without:
        pytest.skip(f"{device} and all others have sub-groups")
    s, args = PROGRAMS["rotated"]()
    with pytest.raises(TargetError, match=r"shuffles between the registers of threads.* use .* scope 'shared'"):
        tensorlang.build(s, args, target=f"opencl -device={without[0].platform.split()[0]}")


def test_lanes_of_two_axes_are_refused() -> None:
    s, args = PROGRAMS["lanes of two axes"]()
    with pytest.raises(
        TargetError, match=r"16 along threadIdx\.x and 2 along threadIdx\.y, and OpenCL tells lanes along x"
    ):
        tensorlang.build(s, args, target="opencl")
