"""What the rules of a search space see of a program: stages as axes and accesses, and what belongs together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Call, walk
from tensorlang.ir.traverse import operations
from tensorlang.schedules.accesses import Access, about, accesses_of, cost_of_point, operations_of_point
from tensorlang.schedules.winograd import Winograd, winograd_of
from tensorlang.schedules.words import panel_read
from tensorlang.te.operation import ComputeOp, HybridOp, axes_at, buffers, loads
from tensorlang.te.program import Program

_FEW = 2  # as often an element may as well be computed as stored and read
_MANY = 32  # stages in front of one: each step of a schedule is proven for all of them
_CHEAP = 4
"""What an element of a row costs, in additions, that may as well be made again for each pass over it."""
_ONE_ROW = 32768
"""Elements of which all may be one row: work for one thread."""
_FOLLOWING = 16
"""Stages at most that are made of one and become one again."""
WRITTEN_OUT = 512
"""Operations at most that an element is written out in: a stage that is read twice doubles with each one behind it."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One compute operation: spatial and reduce axes with constant extents, and its accesses, output first."""

    op: ComputeOp
    spatial: tuple[str, ...]
    reduce: tuple[str, ...]
    extents: dict[str, int]
    accesses: tuple[Access, ...]
    bits: int

    @property
    def name(self) -> str:
        return self.op.name

    @property
    def output(self) -> Access:
        return self.accesses[0]

    @property
    def reads(self) -> tuple[Access, ...]:
        """Accesses that read, each array and index once."""
        return tuple(a for a in self.accesses if not a.write)

    @property
    def points(self) -> float:
        """Iterations, those of the reduction included."""
        return float(math.prod(self.extents.values()))

    def reads_of(self, name: str) -> tuple[Access, ...]:
        """The reads of another stage."""
        return tuple(a for a in self.reads if a.buffer == name or a.buffer.startswith(f"{name}.v"))


@dataclass(frozen=True, slots=True)
class Group:
    """Stages that are scheduled together: a `main` stage, elementwise ones that follow it up to `output`, and others.

    `parts`: further stages of a row, in program order; `rows`: the dimensions of the output that number rows.
    `producers`: elementwise stages that only this group reads.
    `transforms`: what `main` and stages around it are of a Winograd convolution, if they are one.
    """

    main: Stage
    output: Stage
    between: tuple[Stage, ...] = ()
    parts: tuple[Stage, ...] = ()
    producers: tuple[Stage, ...] = ()
    transforms: Winograd | None = None
    rows: tuple[int, ...] = ()

    @property
    def along(self) -> tuple[int, ...]:
        """The dimensions of the output along a row."""
        return tuple(d for d in range(len(self.output.spatial)) if d not in self.rows)

    @property
    def is_light(self) -> bool:
        """Whether little is computed of each element of a row: no function of mathematics."""
        own = [part for part in (*self.parts, self.output) if part.reduce or len(part.spatial) > len(self.rows)]
        return not any(isinstance(n, Call) for part in own for value in part.op.body for n in walk(value))

    def is_read_once(self, part: Stage) -> bool:
        """Whether the elements of a part are read once each, by one stage, which may as well compute them."""
        readers = [stage for stage in (*self.parts, self.output) if stage.reads_of(part.name)]
        (reader, *others) = readers
        plain = len(part.spatial) > len(self.rows) and len(part.op.body) == 1 and not part.op.where
        return plain and not others and reads_of(reader.op, part.op) == 1 and reader.points <= part.points


def stages_of(program: Program) -> tuple[Stage, ...]:
    """The compute stages of a program, producers first."""
    return tuple(stage_of(op) for op in program.ops if isinstance(op, ComputeOp))


def ordered_stages(program: Program) -> tuple[HybridOp, ...]:
    """The stages of ordered statements."""
    return tuple(op for op in program.ops if isinstance(op, HybridOp))


def groups_of(
    program: Program, others: Set[str] = frozenset(), words: bool = False, transforms: bool = True
) -> tuple[Group, ...]:
    """The compute stages of a program in groups, in program order; every stage but the `others` is in one.

    `words`: a sum over words is followed by what takes its panels apart, and by what follows that. `transforms`: the
    sums of a Winograd convolution are followed by both stages that transform them, and by what follows those.
    """
    stages = {s.name: s for s in stages_of(program)}
    groups: dict[str, Group] = {}
    taken = set(others)
    for stage in reversed(stages.values()):  # whole rows first: their stages are not to be groups of their own
        if stage.name in taken or stage.reduce:
            continue
        rows, parts = _row_parts(program, {n: s for n, s in stages.items() if n not in taken}, stage)
        if parts:
            groups[stage.name] = Group(stage, stage, parts=parts, rows=rows)
            taken |= {stage.name, *(part.name for part in parts)}
    for stage in stages.values():
        if stage.reduce and stage.name not in taken:
            transform = winograd_of(program, stage.op) if transforms else None
            behind = () if transform is None else (transform.rows, transform.results)
            begun = [stage, *(stages[roles.op.name] for roles in behind)]
            chain = _followers(program, stages, begun, taken, words)
            groups[stage.name] = Group(stage, chain[-1], chain[1:-1], transforms=transform)
            taken |= {s.name for s in chain}
    for stage in reversed(stages.values()):
        if stage.name in taken:
            continue
        taken.add(stage.name)
        readers = [g for name, g in groups.items() if _feeds(program, stage, g)]
        only = readers[0] if len(readers) == 1 and stage.name not in program.outputs else None
        if only is None or len(only.producers) == _MANY:
            groups[stage.name] = Group(stage, stage)
        else:
            groups[only.main.name] = replace(only, producers=(stage, *only.producers))
    order = {op.name: n for n, op in enumerate(program.ops)}
    return tuple(sorted(groups.values(), key=lambda g: order[g.main.name]))


def is_read_often(group: Group, producer: Stage) -> bool:
    """Whether the group reads the elements of a producer several times each."""
    readers = [s for s in (group.main, *group.parts) if s.reads_of(producer.name)]
    return any(r.reduce and r.points > _FEW * producer.points for r in readers)


def is_made_often(group: Group, producer: Stage) -> bool:
    """Whether elements that are computed would be computed again for each of many results that are no sums."""
    stages = (group.main, *group.between, group.output, *group.parts, *group.producers)
    readers = [s for s in stages if s.reads_of(producer.name) and not s.reduce]
    return bool(operations_of_point(producer.op)) and any(r.points > _FEW * producer.points for r in readers)


def _feeds(program: Program, stage: Stage, group: Group) -> bool:
    inside = {s.name for s in (group.main, group.output, *group.between, *group.parts, *group.producers)}
    return any(name in inside for name in program.consumers[stage.name])


def _followers(
    program: Program, stages: dict[str, Stage], begun: Sequence[Stage], taken: set[str], words: bool
) -> tuple[Stage, ...]:
    """Stages, and those that follow the last one by one and read it at their own element only."""
    chain, written, main = [*begun], 1, begun[0]
    while chain[-1].name not in program.outputs:
        behind = _behind(program, stages, chain[-1], taken)
        if not behind:
            break
        own = all(_own_element(stage, producer) for stage in behind for producer in (chain[-1], *behind[:-1]))
        if not own and not (words and len(chain) == 1 and panel_read(behind[-1].op, main.op) is not None):
            break
        times = {chain[-1].name: written}
        for stage in behind:
            times[stage.name] = operations(stage.op.body) + sum(
                reads_of(stage.op, stages[name].op) * count for name, count in times.items()
            )
        written = times[behind[-1].name]
        if written > WRITTEN_OUT:
            break
        chain += behind
    return tuple(chain)


def _behind(program: Program, stages: Mapping[str, Stage], producer: Stage, taken: Set[str]) -> list[Stage]:
    """The stages without reductions that make one of all that is made of a producer; none where there is no such one.

    Mostly its only reader; `x * sigmoid(x)` is two, of which the first has no other reader.
    """
    found, waiting = list[Stage](), {*program.consumers[producer.name]}
    while waiting and len(found) < _FOLLOWING:
        (name,) = waiting if len(waiting) == 1 else (next(op.name for op in program.ops if op.name in waiting),)
        stage = stages.get(name)
        if stage is None or name in taken or stage.reduce or len(stage.op.body) > 1 or stage.op.where:
            break
        found.append(stage)
        if waiting == {name}:
            return found
        if name in program.outputs:
            break
        waiting = (waiting - {name}) | {*program.consumers[name]}
    return []


def _own_element(stage: Stage, producer: Stage) -> bool:
    """Whether a stage reads a producer of its own shape, at its own element only."""
    if [producer.extents[axis] for axis in producer.spatial] != [stage.extents[axis] for axis in stage.spatial]:
        return False
    made = {buffer.name for buffer in buffers(producer.op)}
    return all(index == stage.spatial for index in axes_read(stage.op, made))


def reads_of(reader: ComputeOp, op: ComputeOp) -> int:
    """How many times an operation reads another, as it is written."""
    made = {buffer.name for buffer in buffers(op)}
    return sum(load.buffer.name in made for load in loads(reader))


def axes_read(op: ComputeOp, arrays: Set[str]) -> Iterator[tuple[str, ...]]:
    """The axes that an operation reads arrays at, dimension by dimension; "" for any other index."""
    for load in loads(op):
        if load.buffer.name in arrays:
            yield axes_at(load)


def _row_parts(program: Program, stages: dict[str, Stage], output: Stage) -> tuple[tuple[int, ...], tuple[Stage, ...]]:
    """The dimensions that number the rows of an output, and the stages that make these; none where it has no rows.

    All of it is a row only where there is no work for several threads.
    """
    for rows in _row_dimensions(program, stages, output):
        if all(d in rows or output.extents[axis] == 1 for d, axis in enumerate(output.spatial)):
            continue  # a row of one element is a value
        parts = _parts_of(program, stages, output, rows)
        small = rows or all(stage.points <= _ONE_ROW for stage in (output, *parts))
        if small and any(part.reduce for part in parts):
            return rows, parts
    return (), ()


def _row_dimensions(program: Program, stages: dict[str, Stage], output: Stage) -> Iterator[tuple[int, ...]]:
    """Which dimensions of an output may number its rows: those that it reads fewer dimensions at, or the first ones."""
    rank, found = len(output.spatial), dict[tuple[int, ...], None]()
    readers = [output]
    for reader in readers:
        for name in dict.fromkeys(a.buffer for a in reader.reads if program.producer[a.buffer] in stages):
            producer = stages[program.producer[name]]
            for index in axes_read(reader.op, {name}):
                places = tuple(reader.spatial.index(axis) for axis in index if axis in reader.spatial)
                if len(places) == rank and not producer.reduce and producer not in readers:
                    readers.append(producer)
                elif len(places) == len(index) < rank and list(places) == sorted(places):
                    found[places] = None
    found |= {tuple(range(leading)): None for leading in range(rank - 1, 0, -1)}
    yield from sorted(found, key=len, reverse=True)


def _parts_of(program: Program, stages: dict[str, Stage], output: Stage, rows: tuple[int, ...]) -> tuple[Stage, ...]:
    """The stages that make the rows of an output: reductions to a value per row, and what is made of those.

    Elements that are made of no value of a row are kept with it only if they cost much to make again.
    """
    barred = set[str]()
    while True:
        found, waiting = dict[str, Stage](), [output]
        while waiting:
            reader = waiting.pop()
            for name in dict.fromkeys(program.producer[a.buffer] for a in reader.reads):
                stage = stages.get(name)
                if stage is None or name in found or name in barred:
                    continue
                if _is_part(reader, stage, output, rows):
                    found[name] = stage
                    waiting.append(stage)
        inside = {output.name, *found}
        escaping = {n for n in found if n in program.outputs or not set(program.consumers[n]) <= inside}
        if not escaping:
            break
        barred |= escaping
    kept = dict[str, Stage]()
    for stage in (s for s in stages.values() if s.name in found):
        made_of = [program.producer[access.buffer] for access in stage.reads]
        follows = any(n in stages and n not in kept and stages[n].reduce for n in made_of)
        if stage.reduce or any(n in kept for n in made_of) or (cost_of_point(stage.op) > _CHEAP and not follows):
            kept[stage.name] = stage
    return tuple(kept.values())


def _is_part(reader: Stage, stage: Stage, output: Stage, rows: tuple[int, ...]) -> bool:
    """Whether a stage is of one row: a value or elements of each, read at the reader's own row only."""
    is_value = len(stage.spatial) == len(rows)
    if not is_value and (len(stage.spatial) != len(output.spatial) or stage.reduce):
        return False
    own, read = (range(len(rows)) if len(s.spatial) == len(rows) else rows for s in (stage, reader))
    if [stage.extents[stage.spatial[d]] for d in own] != [output.extents[output.spatial[d]] for d in rows]:
        return False
    made = {buffer.name for buffer in buffers(stage.op)}
    wanted = [reader.spatial[d] for d in read]
    return all([index[d] for d in own] == wanted for index in axes_read(reader.op, made))


def stage_of(op: ComputeOp) -> Stage:
    """Its axes and accesses."""
    reduction = op.reduction
    reduce_axes = () if reduction is None else reduction.axes
    extents = {a.name: about(a.extent) for a in (*op.axes, *reduce_axes)}
    spatial = tuple(a.name for a in op.axes)
    bits = max(dtypes.info(d).bits for d in op.dtypes)
    reduced = tuple(a.name for a in reduce_axes)
    return Stage(op, spatial, reduced, extents, accesses_of(op, extents), max(8, bits))
