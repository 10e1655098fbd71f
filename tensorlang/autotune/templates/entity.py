"""The choice of one knob: a split, an order, annotations, or a value. Each applies itself to a schedule.

The JSON forms (`sp`, `re`, `an`, `ot` with their data) are those of AutoTVM's logs, version 0.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from tensorlang.dataclass import dataclass
from tensorlang.errors import RecordError, shown
from tensorlang.ir.thread_tags import TAGS
from tensorlang.te.domain import thread_axis

_LARGEST = 1e30  # number that a model in float32 can learn from
ANNOTATIONS = ("none", "vec", "unroll", "fuse", *TAGS)


class Entity(Protocol):
    """What a knob was set to."""

    kind: ClassVar[str]

    def to_json(self) -> Any:
        """The data of a log line."""
        ...

    def features(self) -> tuple[float, ...]:
        """Numbers that a model can learn from."""
        ...


@dataclass(frozen=True, slots=True)
class SplitEntity:
    """How an axis is split. `size`: extents of the parts, outermost first; the first may be -1, what is left."""

    kind: ClassVar[str] = "sp"
    size: list[int]

    def apply(self, sch: Any, op: Any, axis: Any) -> list[Any]:
        """Split an axis of a stage; returns the parts, outermost first."""
        parts = []
        for n in range(1, len(self.size)):
            outer, axis = sch[op].split(axis, factor=math.prod(self.size[n:]))
            parts.append(outer)
        return [*parts, axis]

    def to_json(self) -> list[int]:
        return list(self.size)

    def features(self) -> tuple[float, ...]:
        inner = [max(1, n) for n in self.size[1:]]
        return tuple(math.log2(math.prod(inner[n:])) for n in range(len(inner)))


@dataclass(frozen=True, slots=True)
class ReorderEntity:
    """An order of axes: `perm[n]` is the number of the axis that comes n-th."""

    kind: ClassVar[str] = "re"
    perm: list[int]

    def apply(self, sch: Any, op: Any, axes: Sequence[Any]) -> list[Any]:
        """Put axes of a stage into this order, and return them so."""
        ordered = [axes[n] for n in self.perm if n < len(axes)]
        sch[op].reorder(*ordered)
        return ordered

    def to_json(self) -> list[int]:
        return list(self.perm)

    def features(self) -> tuple[float, ...]:
        return tuple(float(self.perm.index(n)) for n in range(len(self.perm)))


@dataclass(frozen=True, slots=True)
class AnnotateEntity:
    """How axes run, one word each; for `locate_cache`, the numbers of the axes that stages are computed at."""

    kind: ClassVar[str] = "an"
    anns: list[Any]

    def apply(
        self,
        sch: Any,
        op: Any,
        axes: Sequence[Any],
        axis_lens: Sequence[int] | None = None,
        max_unroll: int | None = None,
        vec_size: Sequence[int] | None = None,
        cfg: Any = None,
        source: Sequence[Sequence[Any]] | None = None,
    ) -> list[Any]:
        """Annotate axes of a stage, and return them; in the place of the last of fused axes is the fused one.

        `axis_lens` with `max_unroll` or `vec_size` (and `cfg`, which takes the complaint) leave out what is too long to
        unroll or of no vector's length. `source`: the stages to compute at the chosen axes, a list for each.
        """
        made = list(axes)
        if source is not None:
            for stages, at in zip(source, self.anns, strict=False):
                for stage in stages:
                    sch[stage].compute_at(sch[op], made[at])
            return made
        for n, word in enumerate(self.anns):
            length = axis_lens[n] if axis_lens is not None else None
            if word == "unroll" and max_unroll and length is not None and length > max_unroll:
                cfg.raise_error(f"axis {made[n]} of {length} iterations is unrolled; max_unroll is {max_unroll}")
            if word == "vec" and vec_size and length is not None and length not in vec_size:
                cfg.raise_error(f"axis {made[n]} of {length} iterations is vectorized; vec_size is {list(vec_size)}")
            _annotate(sch[op], made, n, word)
        return made

    def to_json(self) -> list[Any]:
        return list(self.anns)

    def features(self) -> tuple[float, ...]:
        if all(isinstance(a, int) for a in self.anns):
            return tuple(map(float, self.anns))
        return tuple(float(word == known) for word in self.anns for known in ANNOTATIONS[:3])


def _annotate(stage: Any, axes: list[Any], n: int, word: str) -> None:
    if word == "fuse":
        axes[n + 1] = stage.fuse(axes[n], axes[n + 1])
    elif word == "vec":
        stage.vectorize(axes[n])
    elif word == "unroll":
        stage.unroll(axes[n])
    elif word != "none":
        stage.bind(axes[n], thread_axis(word))


@dataclass(frozen=True, slots=True)
class OtherOptionEntity:
    """The value of a plain knob."""

    kind: ClassVar[str] = "ot"
    val: Any

    def to_json(self) -> Any:
        return self.val

    def features(self) -> tuple[float, ...]:
        return (float(self.val),) if isinstance(self.val, int | float) and abs(self.val) <= _LARGEST else ()


def _words(data: Any) -> bool:
    return isinstance(data, list) and all(isinstance(w, int) or w in ANNOTATIONS for w in data)


def _whole_numbers(data: Any) -> bool:
    return isinstance(data, list) and all(isinstance(n, int) and not isinstance(n, bool) for n in data)


_KINDS: Mapping[str, tuple[Callable[[Any], Entity], Callable[[Any], bool]]] = {
    "sp": (SplitEntity, _whole_numbers),
    "re": (ReorderEntity, _whole_numbers),
    "an": (AnnotateEntity, _words),
    "ot": (OtherOptionEntity, lambda data: True),
}


def entity_from_json(kind: str, data: Any) -> Entity:
    """Read an entity of a log line; RecordError when it is none."""
    if kind not in _KINDS or not _KINDS[kind][1](data):
        raise RecordError(f"no knob is written as [{kind!r}, {shown(data)}]; the kinds are {', '.join(_KINDS)}")
    return _KINDS[kind][0](data)
