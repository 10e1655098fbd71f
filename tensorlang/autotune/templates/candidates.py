"""What a knob may be set to: sequences of entities, in AutoTVM's order, so that its numbers mean the same here."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import overload

from tensorlang.autotune.templates.entity import ANNOTATIONS, AnnotateEntity, ReorderEntity, SplitEntity
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError, shown
from tensorlang.ir.thread_tags import BLOCKS, THREADS, VIRTUAL

SPLITS = ("factors", "power2", "verbose", "candidate")
ORDERS = ("identity", "all", "interval_all", "candidate", "interleave", "interleave_cuda")
LONGEST = 2**31 - 1  # extents whose divisors are worth looking for


def divisors(n: int) -> list[int]:
    """All divisors of a number, ascending."""
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return sorted({*small, *(n // d for d in small)})


def powers_of_two(n: int) -> list[int]:
    """Powers of two up to a number."""
    return [1 << k for k in range(n.bit_length())]


def split_factors(extent: int, policy: str, max_factor: int | None) -> list[int]:
    """The extents that a part of a split axis may have."""
    found: set[int] = set()
    if policy in ("factors", "verbose"):
        found.update(divisors(extent))
    if policy in ("power2", "verbose"):
        found.update(powers_of_two(extent))
    return sorted(f for f in found if max_factor is None or f <= max_factor)


def splits(
    extent: int, parts: int, policy: str, max_factor: int | None = None, no_tail: bool | None = None
) -> list[SplitEntity]:
    """All splits of an axis into parts; `no_tail`: only those that leave nothing over (default: policy factors).

    DefinitionError for an axis that is too long to list them.
    """
    if extent > LONGEST:
        raise DefinitionError(
            f"an axis of {extent} elements has too many splits; list those to try: policy='candidate'"
        )
    factors = split_factors(extent, policy, max_factor)
    whole = policy == "factors" if no_tail is None else no_tail

    def inner(left: int, room: int) -> Iterator[tuple[int, ...]]:
        """Inner parts, innermost first, whose product is at most `room`."""
        if not left:
            yield ()
            return
        for factor in itertools.takewhile(lambda f: f <= room, factors):
            for rest in inner(left - 1, room // factor):
                yield (factor, *rest)

    found = []
    for sizes in inner(parts - 1, extent):
        product = math.prod(sizes)
        if extent % product == 0 or (not whole and product < extent):
            found.append(SplitEntity([-1, *reversed(sizes)]))
    return found


@dataclass(frozen=True, slots=True)
class Orders(Sequence[ReorderEntity]):
    """All orders of an interval of axes, in lexicographic order; counted, not stored."""

    axes: int
    begin: int
    end: int

    def __len__(self) -> int:
        return math.factorial(self.end - self.begin)

    @overload
    def __getitem__(self, number: int) -> ReorderEntity: ...

    @overload
    def __getitem__(self, number: slice) -> list[ReorderEntity]: ...

    def __getitem__(self, number: int | slice) -> ReorderEntity | list[ReorderEntity]:
        if isinstance(number, slice):
            return [self[n] for n in range(*number.indices(len(self)))]
        if not 0 <= number < len(self):
            raise IndexError(number)
        left = list(range(self.begin, self.end))
        order = list(range(self.begin))
        for n in range(len(left) - 1, -1, -1):
            place, number = divmod(number, math.factorial(n))
            order.append(left.pop(place))
        return ReorderEntity([*order, *range(self.end, self.axes)])


def interleaved(chains: Sequence[Sequence[int]]) -> list[int]:
    """Merge chains into one, taking in turn from the one of which most is left."""
    left = [list(chain) for chain in chains]
    merged = []
    while longest := max(left, key=len, default=[]):
        merged.append(longest.pop(0))
    return merged


def interleave(spatial: Sequence[Sequence[int]], reduce: Sequence[Sequence[int]], policy: str) -> ReorderEntity:
    """Outer spatial axes, then reductions with the innermost spatial axes among them (`interleave`) or after them."""
    outer = interleaved([chain[:-1] for chain in spatial])
    innermost = [chain[-1:] for chain in spatial]
    if policy == "interleave":
        return ReorderEntity(outer + interleaved([*innermost, *reduce]))
    return ReorderEntity(outer + interleaved(reduce) + [n for chain in innermost for n in chain])


def axis_annotations(axes: int, policy: str) -> list[AnnotateEntity]:
    """All annotations of axes by words of the policy (`try` allows none); at most one axis is vectorized."""
    words = policy.replace("vectorize", "vec").replace("try", "none").split("_")
    if not words or any(word not in ANNOTATIONS[:3] for word in words):
        raise DefinitionError(
            f"no policy {shown(policy)} of define_annotate; write words of none, unroll, vec and try joined by '_', as "
            "in 'try_unroll_vec', or bind_gpu, bind_gpu_virtual, locate_cache"
        )
    chosen = itertools.product(dict.fromkeys(words), repeat=axes)
    return [AnnotateEntity(list(row)) for row in chosen if row.count("vec") <= 1]


def gpu_binding(axes: int, virtual: bool) -> AnnotateEntity:
    """Bind the last axes to blocks, virtual threads if asked, and threads; fuse the axes before them."""
    per_dimension = 3 if virtual else 2
    dimensions = min(3, axes // per_dimension)
    if not dimensions:
        raise DefinitionError(f"binding to a GPU takes at least {per_dimension} axes, got {axes}")
    bound = [*BLOCKS[:dimensions][::-1], *([VIRTUAL] * dimensions if virtual else []), *THREADS[:dimensions][::-1]]
    return AnnotateEntity(["fuse"] * (axes - len(bound)) + bound)


def checked_splits(sizes: Sequence[Sequence[int]], parts: int, name: str) -> list[SplitEntity]:
    """Splits that the user lists."""
    wrong = [size for size in sizes if len(size) != parts]
    if wrong:
        raise DefinitionError(f"define_split({name!r}): a candidate has num_outputs={parts} sizes, got {wrong[0]}")
    return [SplitEntity(list(size)) for size in sizes]


def filtered(
    found: Sequence[SplitEntity], keep: Callable[[SplitEntity], bool] | None, name: str, what: str
) -> list[SplitEntity]:
    """The splits that a filter keeps; DefinitionError says what emptied the knob when it keeps none."""
    kept = [entity for entity in found if keep is None or keep(entity)]
    if not kept:
        why = f"its filter keeps none of the {len(found)}" if found else f"there is none by {what}"
        raise DefinitionError(f"define_split({name!r}) has no candidate: {why}")
    return kept


def anchors(axes: int, count: int) -> list[tuple[int, ...]]:
    """The ways to choose some of the axes, in ascending order."""
    return list(itertools.combinations(range(axes), count))
