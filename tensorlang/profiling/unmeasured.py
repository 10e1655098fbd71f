"""Warnings that need no run: what makes a kernel slow, as far as its loops tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tensorlang.driver import try_lowering
from tensorlang.errors import ArgumentError, TargetError, TensorlangError, shown
from tensorlang.ir.expr import Var
from tensorlang.profiling.advice import Advice, Advised, advice_of
from tensorlang.profiling.machine import Limit
from tensorlang.profiling.profile import LoopTime
from tensorlang.profiling.regions import Region, instrumented
from tensorlang.profiling.work import Work, work_of
from tensorlang.runtime.executable import Executable
from tensorlang.schedule import Schedule
from tensorlang.target.detect import parse
from tensorlang.target.spec import Target

_OPERATIONS, _BYTES = 1e10, 5e10
"""What a core does in a second, more or less: parts are weighed by it, none is timed."""
_SIZE = 512
"""What sizes are taken for, where they are not given."""
_ENTRIES = 1000
"""Parts that begin more often are not told apart."""


def warnings_of(f: Executable, sizes: Mapping[str, int] | None = None) -> tuple[Advice, ...]:
    """Return what would make a kernel slow, dearest first, each with a step that would help; nothing is run.

    Scalar inner loops, reductions that are not split, vectors of elements that lie apart, single threads,
    stages that are computed again, arrays of tiles that the second cache does not hold. `sizes` are those of symbolic
    extents, 512 else. The seconds of an Advice are a guess. TargetError for kernels of GPUs and
    of the interpreter, ArgumentError for sizes that the kernel does not have.
    """
    if not f.target.can.native:
        raise TargetError(f"warnings are for kernels of this CPU, and {f.entry_name} is for the target {f.target.kind}")
    if not f.has_loops:
        raise TargetError(f"{f.entry_name} was loaded without its loops: what is slow is told where it is built")
    known = {v.name: _SIZE for v in (*f.kernel.sizes, *(p for p in f.signature if isinstance(p, Var)))}
    if not isinstance(sizes, Mapping | None) or (sizes and not sizes.keys() <= known.keys()):
        there = ", ".join(known) or "none"
        raise ArgumentError(f"sizes are numbers by name, there are {there}, got {shown(sizes)}")
    return _found(Advised.of(f), known | dict(sizes or {}))


def warnings_of_schedule(
    s: Schedule, target: str | Target | None, sizes: Mapping[str, int]
) -> tuple[Advice, ...] | None:
    """Return what would make the kernel of a schedule slow, as `warnings_of` does; nothing is compiled.

    None where that is not known: for GPUs, the interpreter, and where no kernel of this target can be made.
    """
    machine = parse(target)
    if not machine.can.native:
        return None
    try:
        kernel = try_lowering(s, machine)
    except TensorlangError:
        return None
    return _found(Advised(kernel, machine, s), {v.name: _SIZE for v in kernel.sizes} | dict(sizes))


def _found(f: Advised, sizes: dict[str, int]) -> tuple[Advice, ...]:
    parts = list(_weighed(f, sizes))
    return tuple(advice_of(f, parts, sum(part.seconds for part, *_ in parts if part.limit is not None)))


def _weighed(f: Advised, sizes: dict[str, int]) -> Iterator[tuple[LoopTime, Region, Work]]:
    regions = instrumented(f.kernel, sizes, _ENTRIES).regions
    parents = {region.parent for region in regions}
    for number, region in enumerate(regions):
        work = work_of(region, sizes, f.kernel.streamed)
        seconds = work.cost / _OPERATIONS + work.loaded(f.target.register_bytes) / _BYTES
        limit = None if number in parents else Limit(seconds, "compute")
        yield LoopTime(region.stages, (), 0, 0, seconds, work.operations, work.touched, limit, ""), region, work
