"""Tensor maps: what cannot be encoded is refused with its reason; what can goes to the driver innermost first."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tensorlang.errors import ArgumentError, InternalError, TargetError
from tensorlang.target.cuda import tensor_maps
from tensorlang.target.cuda.tensor_maps import OPAQUE, TensorMap, check_array, check_box, encoded

TILES = TensorMap(4096, "bfloat16", (1000, 512), (1024, 2), (128, 64))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Any, ...]]]:
    """What the driver was asked, by a driver that writes 7 into the map."""
    found: list[tuple[Any, ...]] = []

    def encode(place: ctypes.c_void_p, *arguments: Any) -> int:
        assert place.value is not None
        assert place.value % 64 == 0
        ctypes.memset(place.value, 7, 128)
        found.append(tuple(list(a) if isinstance(a, ctypes.Array) else getattr(a, "value", a) for a in arguments))
        return 0

    monkeypatch.setattr(tensor_maps, "driver", lambda: SimpleNamespace(cuTensorMapEncodeTiled=encode))
    encoded.cache_clear()
    yield found
    encoded.cache_clear()


def test_the_driver_gets_dimensions_innermost_first(asked: list[tuple[Any, ...]]) -> None:
    scalar = encoded(TILES)
    assert asked == [(9, 2, 4096, [512, 1000], [1024], [64, 128], [1, 1], 0, 3, 2, 0)]
    assert scalar.dtype == OPAQUE
    assert scalar.nbytes == 128
    assert set(scalar["opaque"].tolist()) == {0x0707070707070707}


def test_a_map_is_made_once_for_an_address(asked: list[tuple[Any, ...]]) -> None:
    encoded(TILES)
    encoded(replace(TILES))
    encoded(replace(TILES, pointer=8192))
    assert [entry[2] for entry in asked] == [4096, 8192]


def test_one_dimension_has_no_stride_to_give(asked: list[tuple[Any, ...]]) -> None:
    encoded(TensorMap(16, "uint8", (4096,), (1,), (256,), swizzle=0))
    assert asked[0][:6] == (0, 1, 16, [4096], [0], [256])


@pytest.mark.parametrize(
    ("dtype", "box", "swizzle", "why"),
    [
        ("bfloat16", (128, 128), 128, "its rows are 256 bytes, and a swizzle of 128 bytes takes rows of at most that"),
        ("float32", (512, 32), 128, "a side is 1 to 256 elements long"),
        ("int8", (8, 24), 0, "its rows are 24 bytes, and must be a multiple of 16"),
        ("float32", (1, 1, 1, 1, 1, 4), 0, "it has 6 dimensions; 1 to 5"),
        ("float32", (8, 4), 16, "the swizzle is 16 bytes; it is one of 0, 32, 64, 128"),
        ("float32", (), 0, "it has 0 dimensions"),
    ],
)
def test_tiles_that_cannot_be_copied_are_refused(dtype: str, box: tuple[int, ...], swizzle: int, why: str) -> None:
    with pytest.raises(TargetError, match=why):
        check_box(dtype, box, swizzle)


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
def test_a_row_as_wide_as_its_swizzle_is_taken(swizzle: int) -> None:
    check_box("float32", (256, max(32, swizzle) // 4), swizzle)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"pointer": 4104}, "begins at address 0x1008, and must at a multiple of 16 bytes; copy it"),
        ({"strides": (1026, 2)}, r"its strides \(1026, 2\) must be multiples of 16 bytes .* pad its rows"),
        ({"strides": (2, 2000)}, "neighbours of its last dimension are 2000 bytes apart, and must be 2"),
        ({"strides": (0, 2)}, "must be multiples of 16 bytes"),
        ({"shape": (0, 512)}, "every extent is 1 to"),
    ],
)
def test_arrays_that_cannot_be_copied_are_refused(change: dict[str, Any], why: str) -> None:
    check_array(TILES)
    with pytest.raises(ArgumentError, match=why):
        check_array(replace(TILES, **change))


def test_refusals_come_before_the_driver(asked: list[tuple[Any, ...]]) -> None:
    with pytest.raises(ArgumentError):
        encoded(replace(TILES, pointer=8))
    with pytest.raises(TargetError):
        encoded(replace(TILES, box=(128, 128)))
    with pytest.raises(InternalError, match="different lengths"):
        encoded(replace(TILES, box=(64,)))
    assert asked == []


def test_an_answer_of_the_driver_is_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_maps, "driver", lambda: SimpleNamespace(cuTensorMapEncodeTiled=lambda *_: 1))
    with pytest.raises(InternalError, match="cuTensorMapEncodeTiled answers 1"):
        encoded(replace(TILES, pointer=64))
