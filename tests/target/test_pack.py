"""A packed kernel runs where it is unpacked, for every target that runs here."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang import te
from tensorlang.driver import lower
from tensorlang.errors import ArgumentError
from tensorlang.target import parse
from tensorlang.target.backend import backend


@pytest.mark.parametrize("kind", ["llvm", "interpreter"])
def test_an_unpacked_kernel_does_what_was_packed(kind: str) -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: a[i] * 2, name="b")
    target = parse(kind)
    kernel = lower(te.create_schedule(b.op), [a, b], target=target).kernel
    f = backend(kind).unpack(backend(kind).pack(kernel, target), target)
    given, found = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    f(given, found)
    assert np.array_equal(found, 2 * given)
    with pytest.raises(ArgumentError):
        f(given, found[:3])
