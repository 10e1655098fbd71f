"""Facts about index arrays that a user states: what they say about two accesses `A[idx[i] + c]`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tensorlang.dataclass import dataclass
from tensorlang.ir.affine import widens
from tensorlang.ir.expr import Binary, Cast, Const, Expr, Load
from tensorlang.ir.index import to_index
from tensorlang.polyhedral.affine_text import Namer, index_text

FACTS = ("injective", "monotonic", "range")
_EXACT = ("int32", "int64")  # index arithmetic that does not wrap


@dataclass(frozen=True, slots=True)
class Fact:
    """What holds for the elements of an index array.

    `injective`: no two are equal; `monotonic`: they never decrease (one dimension); `range`: `low <= element < high`.
    """

    kind: str
    array: str
    low: int | None = None
    high: int | None = None


@dataclass(frozen=True, slots=True)
class Gather:
    """An index `array[at] + offset`; `at` is isl text."""

    array: str
    at: tuple[str, ...]
    offset: int

    @property
    def form(self) -> tuple[str, int]:
        """What tells gathers apart before their place in the array is looked at."""
        return self.array, self.offset


def gather(expr: Expr, names: Mapping[str, str], namer: Namer, offset: int = 0) -> Gather | None:
    """Read an index as a gather from one place that isl can follow; None when it is anything else."""
    match expr:
        case Cast() if widens(expr.value.dtype, expr.dtype):
            return gather(expr.value, names, namer, offset)
        case Binary(op="add") if isinstance(expr.b, Const) and expr.dtype in _EXACT:
            return gather(expr.a, names, namer, offset + int(expr.b.value))
        case Binary(op="add") if isinstance(expr.a, Const) and expr.dtype in _EXACT:
            return gather(expr.b, names, namer, offset + int(expr.a.value))
        case Binary(op="sub") if isinstance(expr.b, Const) and expr.dtype in _EXACT:
            return gather(expr.a, names, namer, offset - int(expr.b.value))
        case Load():
            texts = [index_text(to_index(i), dict(names), namer) for i in expr.index]
            at = tuple(t for t in texts if t is not None)
            return Gather(expr.buffer.name, at, offset) if len(at) == len(texts) else None
    return None


def bounds(found: Gather | None, facts: Iterable[Fact], dim: str) -> list[str]:
    """What `range` facts say about an index, as isl conditions on a dim."""
    if found is None:
        return []
    known = [f for f in facts if f.kind == "range" and f.array == found.array]
    return [f"{f.low} + {found.offset} <= {dim} < {f.high} + {found.offset}" for f in known]


def when_equal(
    a: tuple[str, int], b: tuple[str, int], at_a: Sequence[str], at_b: Sequence[str], facts: Iterable[Fact]
) -> list[str]:
    """What must hold for the places of two gathers whose indices are equal, as isl conditions.

    `a` and `b` are their forms, `at_a` and `at_b` name the dims of their places.
    """
    (array, first), (other, second) = a, b
    if array != other:
        return []
    kinds = {f.kind for f in facts if f.array == array}
    apart = first - second  # element at b minus element at a
    places = list(zip(at_a, at_b, strict=True))
    found: list[str] = []
    if "injective" in kinds:
        same = " and ".join(f"{x} = {y}" for x, y in places)
        found.append(same if apart == 0 else f"not ({same})")
    if "monotonic" in kinds and apart:
        ((x, y),) = places
        found.append(f"{x} < {y}" if apart > 0 else f"{x} > {y}")
        if "injective" in kinds:  # it grows by at least one per step
            found.append(f"{y} - {x} <= {apart}" if apart > 0 else f"{x} - {y} <= {-apart}")
    return found
