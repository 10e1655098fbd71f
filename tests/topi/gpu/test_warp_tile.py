"""The model of tiles: how many blocks share the terms, and in what order blocks run."""

from __future__ import annotations

import pytest

from tensorlang.schedules.gpu.product_plan import cores_of, product_tile, rows_together
from tensorlang.schedules.gpu.warp_tile import Extents, warp_tile
from tensorlang.target import parse

GPU = parse("cuda -arch=sm_80")
CORES = cores_of(GPU)


def parts(m: int | None, n: int, k: int, in_parts: bool = True) -> int:
    """In how many parts a product of float16 is summed."""
    found = warp_tile(Extents(m, n, 1, 2 * k, 2), GPU, in_groups=False, in_parts=in_parts)
    assert found is not None
    assert (found.parts == 1) or k % found.parts == 0
    return found.parts


def test_terms_are_shared_where_tiles_are_few_and_terms_many() -> None:
    assert parts(128, 128, 16384) >= 8
    assert parts(256, 256, 256) == 1  # too short
    assert parts(4096, 4096, 16384) == 1  # blocks enough
    assert parts(None, 128, 16384) == parts(128, 128, 16384, in_parts=False) == 1


def test_an_architecture_has_its_own_number_of_multiprocessors() -> None:
    assert [cores_of(parse(f"cuda -arch={arch}")) for arch in ("sm_80", "sm_90a")] == [108, 132]
    assert cores_of(parse("interpreter")) == CORES


def test_products_by_threads_share_terms_too() -> None:
    assert product_tile(128, 128, 1, 32, 32, GPU, 8192).parts >= 8
    assert product_tile(128, 128, 1, 32, 32, GPU).parts == 1
    assert product_tile(128, 128, 1, 32, 32, GPU, 251 * 37).parts == 1  # no part of them is a whole number
    assert product_tile(4096, 4096, 1, 32, 32, GPU, 8192).parts == 1


def fetched(m: int, n: int, block: tuple[int, int], together: int) -> int:
    """Rows and columns of factors that the first blocks read, as many as run at a time."""
    down, across = -(-m // block[0]), -(-n // block[1])
    order = [(g * together + r, c) for g in range(down // together) for c in range(across) for r in range(together)]
    first = order[:CORES]
    return len({r for r, _ in first}) * block[0] + len({c for _, c in first}) * block[1]


@pytest.mark.parametrize("m, n", [(4096, 4096), (16384, 4096), (4096, 16384), (1024, 50304)])
def test_the_order_of_blocks_reads_least_at_a_time(m: int, n: int) -> None:
    block = (128, 128)
    found = rows_together(m, n, block, CORES)
    assert (m // block[0]) % found == 0
    seen = {count: fetched(m, n, block, count) for count in (1, 2, 4, 8, 16) if m // block[0] % count == 0}
    assert seen[found] <= min(seen.values()) + 2 * max(block)  # the model rounds the last column up
    assert seen[found] < 0.8 * seen[1]


def test_rows_of_blocks_stay_as_they_are_where_nothing_is_gained() -> None:
    assert rows_together(4096, 256, (128, 128), CORES) == 1
    assert rows_together(37 * 128, 4096, (128, 128), CORES) == 1  # 37 rows of blocks have no groups
    assert rows_together(None, 4096, (128, 128), CORES) == rows_together(4096, None, (128, 128), CORES) == 1
