"""The library on the tensor cores of a CUDA device: products, convolutions, attention, with tiles of all kinds."""

from __future__ import annotations

import pytest

import tensorlang
from tensorlang import topi
from tensorlang.te.operation import Tensor
from tensorlang.testing import check_schedule
from tests.device_targets import needs_cuda, needs_instructions_of
from tests.topi.gpu import test_attention_tensor_cores as attention
from tests.topi.gpu import test_conv2d_tensor_cores as convolutions
from tests.topi.gpu import test_tensor_cores as products
from tests.topi.programs import close

pytestmark = list(needs_cuda)


@pytest.mark.parametrize("name", products.CASES)
def test_products(name: str) -> None:
    args, tile = products.CASES[name]
    arch = products.architecture(name)
    needs_instructions_of(arch)
    check_schedule(products.scheduled(args, tile, arch), args, targets=("cuda",))


@pytest.mark.parametrize("name", convolutions.CASES)
def test_convolutions(name: str) -> None:
    args, tile = convolutions.CASES[name]
    arch = "sm_80" if tile is None else "sm_90a"
    needs_instructions_of(arch)
    check_schedule(convolutions.scheduled(args, arch, tile), args, targets=("cuda",))


@pytest.mark.parametrize("case", attention.CASES)
def test_attention(case: str) -> None:
    n, m, depth, width, is_causal, dtype = attention.CASES[case]
    args = attention.layer(1, n, m, depth, width, is_causal, dtype)
    values, wanted = attention.arrays(case)
    tensorlang.build(attention.scheduled(args, "cuda"), args, target="cuda")(*values)
    close(values[-1], wanted)


def test_the_schedules_of_the_device_itself() -> None:
    """Large enough for what the device does best: warp groups, bulk copies, parts."""

    def check(args: list[Tensor]) -> None:
        check_schedule(topi.schedule(args[-1], "cuda", tuned=False), args, targets=("cuda",))

    for turned in (False, True):
        check(products.product(512, 384, 256, "bfloat16", turned))
    check(products.layer(256, 512, 512))
    check(products.product(64, 64, 2048, turned=True))
