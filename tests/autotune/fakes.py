"""Sketches, nests and traces that need no compiler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import numpy as np

from tensorlang.autotune.model.nest import Kind, Loop, Nest
from tensorlang.autotune.search.sketch import Sketch
from tensorlang.schedules.accesses import Access
from tensorlang.schedules.room import Columns, Constraint


class NothingToOpen:
    """A context manager that is always open, as fakes of harnesses are."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        return None

    def rates(self) -> None:
        """Nothing was measured: the estimate goes by the name of the target."""


@dataclass(frozen=True)
class FakeTrace:
    """A trace that is nothing but its decisions."""

    values: Mapping[str, int] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return repr(sorted(self.values.items()))

    def with_decisions(self, values: Mapping[str, int]) -> FakeTrace:
        return FakeTrace({**self.values, **values})

    def to_json(self) -> Any:
        return dict(self.values)


def matmul_nest(rows: Any, width: Any, threads_share: bool = False, packed: bool = True, size: int = 256) -> Nest:
    """C[i, j] += A[i, k] * B[k, j] with a register tile of rows times width; one candidate per element."""
    rows, width = np.atleast_1d(np.asarray(rows, float)), np.atleast_1d(np.asarray(width, float))
    one = np.ones_like(rows)
    outer = Kind.PARALLEL if threads_share else Kind.SERIAL
    return Nest(
        (
            Loop("j", np.ceil(size / width), outer),
            Loop("i", np.ceil(size / rows)),
            Loop("k", one * size),
            Loop("i", rows, Kind.UNROLLED),
            Loop("j", width, Kind.VECTORIZED),
        ),
        (
            Access("C", 4, (size, size), ((("i", 1),), (("j", 1),)), write=True),
            Access("A", 4, (size, size), ((("i", 1),), (("k", 1),))),
            Access("B", 4, (size, size), ((("k", 1),), (("j", 1),)), packed=packed),
        ),
        {"i": size, "j": size, "k": size},
        frozenset({"k"}),
        2.0 * size**3,
        32,
        len(one),
        local=True,
    )


def fake_sketch(name: str = "fake", largest: int = 32) -> Sketch:
    """A sketch over register tiles, with a limit of 32 on rows times vectors."""

    def nests(values: Columns, count: int) -> tuple[Nest, ...]:
        return (matmul_nest(values["rows"], values["width"]),)

    return Sketch(
        name,
        FakeTrace(),
        {"rows": tuple(range(1, largest + 1)), "width": (16, 32, 48, 64), "depth": (1, 2, 4, 8)},
        (Constraint("the tile fits 32 registers", lambda v: v["rows"] * v["width"] / 16 <= 32),),
        nests,
    )
