"""Full and partial tiles apart: which point loops run whole in a full tile of a peeled split."""

from __future__ import annotations

from collections.abc import Mapping

from tensorlang.schedule.axis_range import AxisRange, constant
from tensorlang.schedule.relation import PartsRelation, SplitRelation, split_factor
from tensorlang.schedule.state import PARTITION_HINT, StageState


def point_loops(stage: StageState, axis: str, known: Mapping[str, AxisRange]) -> tuple[tuple[str, int], ...]:
    """The point loops (name, extent) of a split whose outer axis is `axis`, if its full tiles are wanted apart."""
    whole = len(stage.strands) == 1 and stage.name in stage.strands
    hinted = (PARTITION_HINT, 1) in stage.pragmas.get(axis, ())
    for relation in stage.all_relations:
        if not isinstance(relation, SplitRelation | PartsRelation) or relation.outer != axis:
            continue
        if hinted or relation.tail == "peel":
            factor = constant(split_factor(relation, known[relation.parent]))
            low, extent = constant(known[relation.parent].lower), constant(known[relation.parent].extent)
            below = _leaves_of(stage, relation.inner)
            sizes = [(leaf, constant(known[leaf].extent)) for leaf in below]
            fits = whole and factor and low == 0 and extent is not None and extent % factor == 0
            if fits and not _guarded_above(stage, axis):
                return ()
            found = [(f"{stage.name}.{leaf}{s}", n) for leaf, n in sizes if n is not None for s in ("", ".init")]
            return tuple(found)
    return ()


def _guarded_above(stage: StageState, axis: str) -> bool:
    """True when the split axis is itself part of another split, whose guard may cut this one."""
    splits = [r for r in stage.all_relations if isinstance(r, SplitRelation | PartsRelation)]
    made, inner = {r.outer for r in splits}, {r.inner for r in splits}
    parents = {r.parent for r in splits if r.outer == axis}
    return bool(parents & (made | inner))


def _leaves_of(stage: StageState, axis: str) -> list[str]:
    if axis in stage.leaves:
        return [axis]
    found: list[str] = []
    for r in stage.all_relations:
        match r:
            case SplitRelation() | PartsRelation() if r.parent == axis:
                found += _leaves_of(stage, r.outer) + _leaves_of(stage, r.inner)
    return found
