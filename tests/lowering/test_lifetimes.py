"""Arrays have to outlive the iterations that share them, and every build sees to it."""

from __future__ import annotations

import pytest

import tensorlang
from tensorlang.errors import InternalError
from tensorlang.schedule.derive import threads
from tests.conformance.test_device_kernels import registers_ahead


def test_registers_that_do_not_outlive_an_iteration_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "takewhile", lambda keep, loops: loops)
    case = registers_ahead()
    with pytest.raises(InternalError, match=r"makes A\.local anew \(k_o\) where it has to live on"):
        tensorlang.lower(case.s, case.args, target="interpreter")


def test_registers_are_made_outside_of_the_loop() -> None:
    case = registers_ahead()
    text = str(tensorlang.lower(case.s, case.args, target="interpreter"))
    assert text.index("allocate A.local") < text.index("for k_o")
