"""The proof that ordered statements read only elements that an earlier one wrote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensorlang import config
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, Load, to_text
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer, conditions_text, dims, index_text, is_visible
from tensorlang.polyhedral.extract import guarded_loads, in_place
from tensorlang.polyhedral.ordered import Source, shared_prefix, sources
from tensorlang.polyhedral.statement import Access
from tensorlang.polyhedral.witness import element_text
from tensorlang.te.operation import HybridOp
from tensorlang.te.program import Program, local_arrays


@dataclass(frozen=True, slots=True)
class Reading:
    """A load of a statement, in the part of its domain where it runs."""

    source: Source
    load: Load
    domain: tuple[Expr, ...]

    def is_visible(self, sizes: frozenset[str]) -> bool:
        """Whether isl sees when the load runs, and what it reads."""
        return is_visible(dims(self.source.axes), Namer(sizes), self.domain, self.load.index)


def check_written(program: Program) -> None:
    """Refuse a read of a new array that nothing wrote before; DefinitionError with the first such instance.

    An array that is updated in place is written from the start. What depends on data is left alone.
    """
    sizes = frozenset(v.name for v in program.sizes)
    for op in program.ops:
        if isinstance(op, HybridOp):
            try:
                with isl.budget(config.get("budget")):
                    _check(op, sizes)
            except isl.BudgetExceeded:
                continue  # nothing is known then, and the kernel reads what the array holds


def _check(op: HybridOp, sizes: frozenset[str]) -> None:
    fresh = {b.name for b, old in zip(op.outputs, op.updates, strict=True) if old is None}
    fresh |= {b.name for b in local_arrays(op)}
    found = list(sources(op).values())
    for reading in (r for source in found for r in readings(source) if r.load.buffer.name in fresh):
        namer = Namer(sizes)
        missing = unwritten(reading, found, namer)
        if missing is not None:
            raise DefinitionError(_complaint(op, reading, missing, namer), op.location)


def readings(source: Source) -> Iterator[Reading]:
    """The loads of a statement; a condition is tested where those before it hold."""
    seen: tuple[Expr, ...] = tuple(source.ranges)
    for condition in source.conditions:
        for load, guards in guarded_loads(condition):
            yield Reading(source, load, (*seen, *guards))
        seen = (*seen, condition)
    for expr in (*source.store.index, source.store.value):
        for load, guards in guarded_loads(expr):
            yield Reading(source, load, (*seen, *guards))


def unwritten(reading: Reading, found: Sequence[Source], namer: Namer) -> isl.Set | None:
    """The instances of a read that come before every write of their element; None when there are none."""
    names = dims(reading.source.axes)
    where, exact = conditions_text(reading.domain, names, namer)
    index = [index_text(i, names, namer) for i in reading.load.index]
    known = [text for text in index if text is not None]
    if not exact or len(known) < len(index):
        return None
    earlier = [
        text for writer in _nearest_first(reading, found) for text in writer.before(reading, known, names, namer)
    ]
    missing = _set(names, [where, namer.context()], namer)
    for text in earlier:
        if missing.is_empty():
            return None
        missing = missing.subtract(_set(names, [text], namer))
    return None if missing.is_empty() else missing


def _set(names: dict[str, str], conditions: Sequence[str], namer: Namer) -> isl.Set:
    text = " and ".join(c for c in conditions if c)
    return isl.make_set(f"{namer.prefix()}{{ [{', '.join(names.values())}] : {text} }}")


@dataclass(frozen=True, slots=True)
class _Writer:
    """A store of the array, and the number of loops around it that are also around the read."""

    source: Source
    shared: int

    def before(self, reading: Reading, index: Sequence[str], names: dict[str, str], namer: Namer) -> Iterator[str]:
        """Conditions on a read's loops: this store wrote its element in the same iterations of the first `k` shared
        loops, and earlier in the next one (or earlier in the body of the last).

        Conditions on data count as met, and an index that isl cannot see as any element.
        """
        private = len(reading.source.scopes.get(reading.load.buffer.name, ()))
        depths = list(range(self.shared - 1, private - 1, -1))
        here, there = (int(s.position[2 * self.shared]) for s in (self.source, reading.source))
        if here < there:
            depths.insert(0, self.shared)
        loops = self.source.axes
        for depth in depths:
            at = {name: names[name] if k < depth else f"w{k}" for k, name in enumerate(loops)}
            own = [at[name] for name in loops[depth:]]
            where, _ = conditions_text(self.source.domain, at, namer)
            tests = [where]
            for written, wanted in zip(self.source.store.index, index, strict=True):
                text = index_text(written, at, namer)
                tests += [] if text is None else [f"{text} = {wanted}"]
            if depth < self.shared:
                tests.append(f"w{depth} < {names[loops[depth]]}")
            condition = " and ".join(tests)
            yield f"exists ({', '.join(own)} : {condition})" if own else condition


def _nearest_first(reading: Reading, found: Sequence[Source]) -> list[_Writer]:
    """The stores of the array that is read: those that share most loops with the read first, later ones first."""
    writers: list[tuple[int, int, _Writer]] = []
    for number, source in enumerate(found):
        if source.store.buffer.name == reading.load.buffer.name:
            shared = len(shared_prefix(source.axes, reading.source.axes))
            writers.append((shared, number, _Writer(source, shared)))
    return [writer for _, _, writer in sorted(writers, key=lambda w: w[:2], reverse=True)]


def _complaint(op: HybridOp, reading: Reading, missing: isl.Set, namer: Namer) -> str:
    count = missing.dim(isl.DIM.param)
    values = isl.lexicographic_minimum(missing.move_dims(isl.DIM.set, 0, isl.DIM.param, 0, count))
    sizes = {to_text(e): v for e, v in zip(namer.parameters.values(), values[:count], strict=True)}
    at = dict(zip(reading.source.axes, values[count:], strict=True))
    element = element_text(Access(reading.load.buffer.name, reading.load.index), {**at, **sizes})
    known = ", ".join(f"{name}={value}" for name, value in sizes.items())
    return (
        f"{op.name}: {reading.source.name}[{', '.join(map(str, at.values()))}] reads {element} before anything wrote it"
        f"{f', for instance with {known}' if known else ''}; write the element first, or guard the read"
        f"{in_place(op, reading.load.buffer.name)}"
    )
