"""The swizzle of shared memory, the count of bank conflicts, and the descriptors of wgmma."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorlang.errors import TargetError
from tensorlang.ir.swizzle import CHUNK, SPANS, can_swizzle
from tensorlang.target.cuda.fragments import A_ROWS, B_COLUMNS, B_ROWS, Gather
from tensorlang.target.cuda.swizzle import (
    Descriptor,
    descriptor_along_k,
    descriptor_along_n,
    hardware_address,
    swizzled_offset,
    wavefronts,
)

ROWS = (32, 64, 128, 256)
Placed = Callable[[int, int], int]


def placements(row_bytes: int) -> dict[str, Placed]:
    """Where byte `byte` of row `row` lies: in plain rows, in rows padded by 16 bytes, and swizzled."""
    return {
        "plain": lambda row, byte: row * row_bytes + byte,
        "padded": lambda row, byte: row * (row_bytes + CHUNK) + byte,
        "swizzled": lambda row, byte: swizzled_offset(row, byte, row_bytes),
    }


@pytest.mark.parametrize(
    ("row_bytes", "plain", "padded"), [(32, 8, 4), (64, 16, 4), (128, 32, 4), (256, 32, 4)], ids=str
)
def test_ldmatrix_conflicts_unless_swizzled(row_bytes: int, plain: int, padded: int) -> None:
    counted = {
        name: wavefronts([place(lane % 16, lane // 16 * CHUNK) for lane in range(32)], CHUNK)
        for name, place in placements(row_bytes).items()
    }
    assert counted == {"plain": plain, "padded": padded, "swizzled": 4}


@pytest.mark.parametrize(("row_bytes", "padded"), [(32, 8), (64, 8), (128, 4), (256, 4)], ids=str)
def test_copies_of_neighbouring_chunks_conflict_when_short_rows_are_padded(row_bytes: int, padded: int) -> None:
    chunks = row_bytes // CHUNK
    counted = {
        name: wavefronts([place(lane // chunks, lane % chunks * CHUNK) for lane in range(32)], CHUNK)
        for name, place in placements(row_bytes).items()
    }
    assert counted == {"plain": 4, "padded": padded, "swizzled": 4}


@pytest.mark.parametrize("gather", [A_ROWS, B_COLUMNS, B_ROWS], ids=["A", "B columns", "B rows"])
@pytest.mark.parametrize("row_bytes", ROWS)
def test_every_gather_of_fragments_is_free_of_conflicts(gather: Gather, row_bytes: int) -> None:
    for corner in range(0, row_bytes // CHUNK, 2):
        places = (gather.place(lane) for lane in range(32))
        offsets = [swizzled_offset(row, (corner + chunk) * CHUNK, row_bytes) for row, chunk in places]
        assert wavefronts(offsets, CHUNK) == 4


def test_a_column_of_floats_needs_an_odd_row_length() -> None:
    assert wavefronts([lane * 32 * 4 for lane in range(32)], 4) == 32
    assert wavefronts([lane * 33 * 4 for lane in range(32)], 4) == 1


def test_lanes_that_read_the_same_word_do_not_conflict() -> None:
    assert wavefronts([0] * 32, 4) == 1
    assert wavefronts([lane // 2 * 8 for lane in range(32)], 8) == 2


@given(st.sampled_from([*ROWS, 384, 512]), st.integers(1, 24))
def test_a_swizzled_tile_fills_its_bytes_once(row_bytes: int, rows: int) -> None:
    offsets = [swizzled_offset(r, byte, row_bytes) for r in range(rows) for byte in range(0, row_bytes, CHUNK)]
    assert sorted(offsets) == list(range(0, rows * row_bytes, CHUNK))
    assert all(offset // row_bytes == k // (row_bytes // CHUNK) for k, offset in enumerate(offsets))


@pytest.mark.parametrize("span", SPANS)
def test_short_rows_are_swizzled_as_the_hardware_does(span: int) -> None:
    for base in (0, 5 * 1024):
        for row in range(32):
            for byte in range(span):
                assert base + swizzled_offset(row, byte, span) == hardware_address(base + row * span + byte, span)


@pytest.mark.parametrize("row_bytes", [0, 16, 48, 96, 192])
def test_rows_without_a_swizzle_are_refused(row_bytes: int) -> None:
    assert not can_swizzle(row_bytes)
    with pytest.raises(TargetError, match=f"rows of {row_bytes} bytes .* pad them"):
        swizzled_offset(0, 0, row_bytes)


def test_a_span_that_the_hardware_lacks_is_refused() -> None:
    with pytest.raises(TargetError, match="32, 64 and 128"):
        hardware_address(0, 256)


def test_a_descriptor_along_k_has_the_bits_of_the_specification() -> None:
    bits = descriptor_along_k(0x2400).encoded()
    assert bits == (0x2400 >> 4) | 1 << 16 | (1024 >> 4) << 32 | 1 << 62
    # The next 16 halves of a row: 32 bytes further, 2 in the field of the address.
    assert descriptor_along_k(0x2400 + 32).encoded() == bits + 2


@pytest.mark.parametrize(("span", "stride", "mode"), [(128, 1024, 1), (64, 512, 2), (32, 256, 3)])
def test_a_descriptor_names_its_span(span: int, stride: int, mode: int) -> None:
    made = descriptor_along_k(4096, span)
    assert (made.stride, made.encoded() >> 62) == (stride, mode)


def test_a_descriptor_along_n_tells_the_distance_of_its_atoms() -> None:
    made = Descriptor.decoded(descriptor_along_n(8192, 64 * 128).encoded())
    assert made == Descriptor(8192, 8192, 1024, 128)


FIELD = st.integers(0, (1 << 14) - 1).map(lambda n: n * 16)


@given(FIELD, FIELD, FIELD, st.sampled_from([0, *SPANS]))
def test_descriptors_are_decoded_to_what_they_were(address: int, leading: int, stride: int, span: int) -> None:
    made = Descriptor(address, leading, stride, span)
    assert Descriptor.decoded(made.encoded()) == made


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (Descriptor(8, 16, 1024, 128), "address of a wgmma descriptor"),
        (Descriptor(0, 16, 1 << 18, 128), "stride of a wgmma descriptor"),
        (Descriptor(0, -16, 1024, 128), "leading of a wgmma descriptor"),
        (Descriptor(0, 16, 1024, 256), "spans of 32, 64 and 128 bytes"),
    ],
    ids=["address", "stride", "leading", "span"],
)
def test_a_descriptor_that_does_not_fit_is_refused(made: Descriptor, why: str) -> None:
    with pytest.raises(TargetError, match=why):
        made.encoded()
