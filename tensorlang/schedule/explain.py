"""What a schedule is, in words: its dependences, what each loop may do and why, and what each stage costs in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from math import prod
from typing import Any

from tensorlang import config, dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument, ScheduleError, shown
from tensorlang.ir.expr import Const, Expr, to_text
from tensorlang.ir.simplify import simplify
from tensorlang.ir.stmt import LoopKind
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import with_sizes
from tensorlang.polyhedral.count import instances, points
from tensorlang.polyhedral.distances import Distance, distances
from tensorlang.polyhedral.footprint import Box, Reader, needed
from tensorlang.polyhedral.legality import Violation, violations
from tensorlang.polyhedral.nest import Loop
from tensorlang.polyhedral.nest import loops as loops_of
from tensorlang.polyhedral.statement import Role, Scop, Statement
from tensorlang.schedule.check import is_legal
from tensorlang.schedule.derive import derive
from tensorlang.schedule.derive.plans import BufferPlan, Derived
from tensorlang.schedule.explain_page import explanation_html
from tensorlang.schedule.primitives.loops import Reorder
from tensorlang.schedule.state import ScheduleState


@dataclass(frozen=True, slots=True)
class LoopNote:
    """What a loop may do: `order` is parallel, reduction or sequential; `movable` if it may change places with the
    loop directly around it; `because` names the dependence that it carries.

    `trips`: how often it runs, each time. `bytes`: of all elements that it touches in that, tiles counted as full; None
    where that is not known.
    """

    stage: str
    axis: str
    depth: int
    runs: str
    order: str
    movable: bool
    because: str
    trips: str = ""
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class StageNote:
    """What a stage costs: its array (bytes; None if symbolic), where it lives, and how often elements are recomputed.

    `shape` is that of the array as allocated. `recomputed` is the number of evaluations per element: 1.0 means none;
    None where the sizes are not known or counting takes too long.
    """

    stage: str
    place: str
    array: str
    shape: tuple[str, ...]
    bytes: int | None
    scope: str
    reads: tuple[tuple[str, str], ...]
    recomputed: float | None


@dataclass(frozen=True, slots=True)
class FormNote:
    """The form of loops that the library has given a stage, and why this one."""

    stage: str
    form: str
    why: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Prints as text; `to_json` gives the same as data.

    `warnings`: what would make its kernel slow, each with a step that would help; None where that is not known.
    """

    title: str
    dependences: tuple[Distance, ...]
    loops: tuple[LoopNote, ...]
    stages: tuple[StageNote, ...]
    forms: tuple[FormNote, ...] = ()
    warnings: tuple[Any, ...] | None = None

    def __str__(self) -> str:
        return "\n".join(_lines(self)) + "\n"

    __repr__ = __str__

    def to_json(self) -> dict[str, Any]:
        """The explanation as JSON data."""
        return asdict(self)

    def _repr_html_(self) -> str:
        return explanation_html(self)


def explain(
    state: ScheduleState, title: str, sizes: Mapping[str, int] | None = None, forms: tuple[FormNote, ...] = ()
) -> Explanation:
    """Return the dependences, loops and stages of a state; `sizes` gives symbolic ones numbers, for counts and bytes.

    Raises BadArgument for a name that is no size of the program, and for a number that no size has.
    """
    known = checked_sizes(state, sizes)
    derived = derive(state)
    loops, stages = tuple(_loop_notes(state, derived, known)), tuple(stage_notes(state, derived, known))
    storage = state.program.storage
    found = [replace(d, array=storage[d.array][0]) if d.array in storage else d for d in distances(derived.scop)]
    return Explanation(title, tuple(found), loops, stages, forms)


def checked_sizes(state: ScheduleState, sizes: Mapping[str, int] | None) -> dict[str, int]:
    """Sizes by their names; BadArgument for what is none."""
    if not isinstance(sizes, Mapping | None):
        raise BadArgument("", f"sizes are numbers by name, as in {{'n': 100}}, got {shown(sizes)}")
    for name, value in (sizes or {}).items():
        if name not in state.sizes:
            raise BadArgument(
                "", f"{name} is no size of the program; there are {', '.join(sorted(state.sizes)) or 'none'}"
            )
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise BadArgument("", f"size {name} must be a whole number of at least 0, got {value!r}")
    return dict(sizes or {})


def _loop_notes(state: ScheduleState, derived: Derived, sizes: Mapping[str, int]) -> Iterator[LoopNote]:
    """Every loop, tested by itself: which dependences break if its iterations run at once, or outside the next."""
    plain = [replace(s, lanes=()) for s in derived.scop.statements]
    scop = replace(derived.scop, statements=tuple(plain), unordered=frozenset())
    around: dict[str, tuple[str, ...]] = {}
    for s in scop.statements:
        for k, name in enumerate(s.loops):
            around.setdefault(name, s.loops[:k])
    named = {loop.name: loop for loop in loops_of(derived.tree)}
    for loop in named.values():
        outer = around.get(loop.name, ())
        broken = violations(replace(scop, unordered=frozenset({loop.name})))
        kinds = {v.kind for v in broken}
        order = "parallel" if not broken else "reduction" if kinds == {"reduction"} else "sequential"
        because = ", ".join(f"{_listed(kinds)} through {array}" for array, kinds in _by_array(broken).items())
        movable = bool(outer) and _may_swap(state, named[outer[-1]], loop)
        count = to_text(simplify(with_sizes(loop.upper - loop.lower, sizes)))
        touched = _touched(state, loop, derived, named, sizes)
        yield LoopNote(loop.stage, loop.axis, len(outer), _runs(loop), order, movable, because, count, touched)


def _touched(
    state: ScheduleState, loop: Loop, derived: Derived, loops: Mapping[str, Loop], sizes: Mapping[str, int]
) -> int | None:
    """The bytes that one run of a loop touches."""
    shapes = {a.name: a.shape for a in derived.scop.arrays}
    found: dict[str, list[Reader]] = {}
    prefix: list[tuple[str, Expr, Expr]] = []
    for s in (s for s in derived.scop.statements if loop.name in s.loops):
        at = s.loops.index(loop.name)
        ranges = [(n, loops[n].lower, loops[n].upper) for n in s.loops]
        prefix = ranges[:at]
        for access in (*s.reads, *s.writes):
            found.setdefault(access.array, []).append(Reader(access.index, tuple(ranges[at:])))
    total = 0
    for array, readers in found.items():
        boxes = needed(readers, prefix, len(shapes[array]), derived.scop.sizes)
        extents = [_within(box, whole, sizes) for box, whole in zip(boxes, shapes[array], strict=True)]
        if array not in state.program.buffers or not all(isinstance(extent, Const) for extent in extents):
            return None
        elements = prod(int(extent.value) for extent in extents if isinstance(extent, Const))
        total += elements * dtypes.info(state.program.buffers[array].dtype).bytes
    return total


def _by_array(broken: Sequence[Violation]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for v in broken:
        if v.kind not in found.setdefault(v.array, []):
            found[v.array].append(v.kind)
    return found


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _runs(loop: Loop) -> str:
    return loop.thread or loop.kind.value if loop.kind is not LoopKind.SERIAL else ""


def _may_swap(state: ScheduleState, outer: Loop, inner: Loop) -> bool:
    """Whether two loops, one directly inside the other, may change places."""
    if outer.stage != inner.stage:
        return False
    try:
        swapped, _ = Reorder(inner.stage, (inner.axis, outer.axis)).apply(state)
    except ScheduleError:
        return False
    return is_legal(swapped)


def stage_notes(state: ScheduleState, derived: Derived, sizes: Mapping[str, int]) -> Iterator[StageNote]:
    """What each stage of a state costs."""
    for name, stage in state.stages.items():
        word = "after" if stage.attach is not None and stage.attach.after else "at"
        where = "at the root" if stage.attach is None else f"{word} {stage.attach.axis} of {stage.attach.stage}"
        own = [s for s in derived.scop.statements if s.stage == name]
        reads = _reads(own, derived, sizes)
        for array in dict.fromkeys(w.array for s in own for w in s.writes):
            plan = derived.plans.get(array)
            if plan is None:
                continue
            shape = [simplify(with_sizes(e, sizes)) for e in plan.buffer.shape]
            recomputed = _recomputed(own, derived.scop, sizes) if stage.attach is not None else 1.0
            texts = tuple(map(to_text, shape))
            yield StageNote(name, where, array, texts, _bytes(plan, shape), plan.buffer.scope, reads, recomputed)


def _reads(statements: Sequence[Statement], derived: Derived, sizes: Mapping[str, int]) -> tuple[tuple[str, str], ...]:
    """Every array read, with the box of elements that the stage needs of it each time it is computed."""
    loops = {loop.name: loop for loop in loops_of(derived.tree)}
    stage = statements[0].stage
    around = [n for n in statements[0].loops if loops[n].stage != stage]
    prefix = [(n, loops[n].lower, loops[n].upper) for n in around]
    shapes = {a.name: a.shape for a in derived.scop.arrays}
    found: dict[str, list[Reader]] = {}
    for s in statements:
        inner = tuple((n, loops[n].lower, loops[n].upper) for n in s.loops if n not in around)
        for read in s.reads:
            found.setdefault(read.array, []).append(Reader(read.index, inner))
    made = []
    for array, readers in found.items():
        boxes = needed(readers, prefix, len(shapes[array]), derived.scop.sizes)
        extents = [_within(box, whole, sizes) for box, whole in zip(boxes, shapes[array], strict=True)]
        made.append((array, " x ".join(map(to_text, extents)) or "1"))
    return tuple(made)


def _within(box: Box | None, whole: Expr, sizes: Mapping[str, int]) -> Expr:
    """The size of a box, which counts tiles as full, cut to that of the array."""
    limit = simplify(with_sizes(whole, sizes))
    size = limit if box is None else simplify(with_sizes(box.size, sizes))
    if not isinstance(size, Const):
        return limit
    return limit if isinstance(limit, Const) and size.value > limit.value else size


def _bytes(plan: BufferPlan, shape: Sequence[Expr]) -> int | None:
    total = dtypes.info(plan.buffer.dtype).bits // 8 or 1
    for extent in shape:
        if not isinstance(extent, Const):
            return None
        total *= int(extent.value)
    return total


def _recomputed(statements: Sequence[Statement], scop: Scop, sizes: Mapping[str, int]) -> float | None:
    """Evaluations per element of a stage that is computed in tiles."""
    if not scop.sizes <= set(sizes):
        return None
    main = next((s for s in statements if s.role is Role.INIT), statements[0])
    try:
        with isl.budget(config.get("budget")):
            distinct = points(main, scop, sizes)
            return instances(main, scop, sizes) / distinct if distinct else 1.0
    except isl.BudgetExceeded:
        return None


def _lines(found: Explanation) -> Iterator[str]:
    yield found.title
    if found.forms:
        yield "forms"
        yield from (f"  {note.stage} {note.form}: {note.why}" for note in found.forms)
    yield "dependences"
    merged: dict[tuple[str, str, str, str, tuple[str, ...]], list[str]] = {}
    for d in found.dependences:
        merged.setdefault((d.kind, d.source, d.sink, d.array, d.axes), []).append(d.text())
    for (kind, source, sink, array, axes), texts in merged.items():
        apart = f"  distance {' '.join(dict.fromkeys(texts))} in ({', '.join(axes)})" if axes else ""
        yield f"  {kind:<9} {source} -> {sink} through {array}{apart}"
    if not found.dependences:
        yield "  none"
    yield "loops"
    for loop in found.loops:
        yield f"  {'  ' * loop.depth}{_loop_line(loop)}"
    yield "stages"
    for stage in found.stages:
        yield f"  {stage.stage} {stage.place}: {_stage_line(stage)}"
        for array, box in stage.reads:
            yield f"    reads {array}: {box} elements"
    if found.warnings is not None:
        yield "warnings"
        yield from (f"  {one}" for one in found.warnings or ("none",))


def _loop_line(loop: LoopNote) -> str:
    why = {
        "parallel": "parallel: no dependence between its iterations",
        "reduction": f"reduction: carries {loop.because}; any order, not at once (rfactor to run it in parallel)",
        "sequential": f"sequential: carries {loop.because}",
    }[loop.order]
    runs = f" [{loop.runs}]" if loop.runs else ""
    swap = "; permutable with the loop around it" if loop.movable else ""
    return f"{loop.stage}.{loop.axis}{runs}  {why}{swap}"


def _stage_line(stage: StageNote) -> str:
    size = "" if stage.bytes is None else f", {stage.bytes:,} bytes"
    memory = f"{stage.array}[{', '.join(stage.shape)}] in {stage.scope} memory{size}"
    if stage.recomputed is None:
        return f"{memory}; recomputation depends on the sizes: give them to explain"
    if stage.recomputed == 1.0:
        return f"{memory}; every element computed once"
    return f"{memory}; every element computed {stage.recomputed:.2f} times on average"
