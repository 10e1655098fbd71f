"""What targets can do, by their kind, their architecture and their limits."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from tensorlang.errors import InternalError
from tensorlang.target import parse
from tensorlang.target.backend import device_backend, resolved
from tensorlang.target.gpus import CUDA, multiprocessors
from tensorlang.target.kinds import DEFAULT_CUDA, KINDS, Capabilities, capabilities
from tensorlang.target.spec import GpuLimits, Target

WORDS = tuple(f.name for f in fields(Capabilities))


def able(target: Target | str) -> set[str]:
    """What a target can do, in words."""
    found = parse(target).can
    return {word for word in WORDS if getattr(found, word)}


def test_kinds_differ_in_what_they_can_do() -> None:
    assert able("llvm") == {"native", "python_calls"}
    assert able("interpreter") == {"blocks", "python_calls", "chosen_limits", "bulk_copies"}
    assert able("opencl") == {"device", "blocks"}
    assert able("cuda") == {"device", "blocks", "cold_timing", "async_copies", "tensor_cores"}
    assert {word for kind in KINDS for word in able(kind)} | {"float8_products", "warp_groups"} == set(WORDS)


@pytest.mark.parametrize(
    ("arch", "more"),
    [
        ("sm_75", set()),
        ("sm_80", {"async_copies", "tensor_cores"}),
        ("sm_86", {"async_copies", "tensor_cores"}),
        ("sm_89", {"async_copies", "tensor_cores", "float8_products"}),
        ("sm_90", {"async_copies", "tensor_cores", "float8_products", "bulk_copies"}),
        ("sm_90a", {"async_copies", "tensor_cores", "float8_products", "bulk_copies", "warp_groups"}),
        ("sm_100a", {"async_copies", "tensor_cores", "float8_products", "bulk_copies"}),
        ("sm_120", {"async_copies", "tensor_cores", "float8_products", "bulk_copies"}),
    ],
)
def test_architectures_can_do_more(arch: str, more: set[str]) -> None:
    assert able(f"cuda -arch={arch}") == {"device", "blocks", "cold_timing", *more}


def test_architectures_that_are_in_no_table() -> None:
    """Newer ones can do what older ones can; a name that says nothing stands for the usual one."""
    assert capabilities("cuda", "sm_103").tensor_cores and not capabilities("cuda", "sm_70").async_copies
    assert capabilities("cuda", "a device of somebody else") == capabilities("cuda", DEFAULT_CUDA)
    assert set(KINDS["cuda"].architectures) < set(WORDS) and set(KINDS["cuda"].architectures.values()) <= CUDA.keys()


def test_the_name_of_a_device_is_no_architecture() -> None:
    assert able("opencl -device=sm_90a") == able("opencl")
    assert parse("opencl -device=sm_90a").architecture == parse("llvm").architecture == ""
    assert multiprocessors(parse("opencl -device=sm_90")) is None


def test_the_usual_architecture_is_taken_where_none_is_named() -> None:
    assert parse("cuda").architecture == DEFAULT_CUDA and parse("cuda -arch=sm_90a").architecture == "sm_90a"
    assert multiprocessors(parse("cuda")) == multiprocessors(parse(f"cuda -arch={DEFAULT_CUDA}"))


def test_limits_of_a_device_tell_of_bulk_copies() -> None:
    target = parse("cuda -arch=sm_80")
    assert replace(target, gpu=GpuLimits(bulk_copies=True)).can == replace(target.can, bulk_copies=True)
    assert not replace(target, gpu=None).can.bulk_copies


def test_machines_of_others_can_do_nothing() -> None:
    """Records may be of targets that tensorlang does not compile for."""
    other = Target("rocm", cpu="gfx90a", gpu=GpuLimits())
    assert other.can == Capabilities() and other.keys == ("cpu",) and str(other) == "rocm -mcpu=gfx90a"


def test_only_devices_have_an_architecture_to_resolve() -> None:
    named = parse("cuda -arch=sm_90a")
    assert resolved(named) == named
    for text in ("llvm", "interpreter", "opencl"):
        assert resolved(parse(text)) == parse(text)
    with pytest.raises(InternalError, match="knows no devices"):
        device_backend(parse("llvm"))
