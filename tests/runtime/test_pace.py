"""Settings of the interpreter hold inside, and are as they were behind the last who leaves."""

from __future__ import annotations

import gc
import sys

from tensorlang.runtime.pace import steady


def settings() -> tuple[tuple[int, int, int], float]:
    return gc.get_threshold(), sys.getswitchinterval()


def test_settings_come_back_in_whatever_order_blocks_end() -> None:
    before = settings()
    first, second = steady(), steady()
    first.__enter__()
    inside = settings()
    second.__enter__()
    first.__exit__(None, None, None)  # as those of two threads may
    assert settings() == inside and inside[0][0] > before[0][0] and inside[1] < before[1]
    second.__exit__(None, None, None)
    assert settings() == before


def test_who_collects_nothing_goes_on_to() -> None:
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        with steady():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)
