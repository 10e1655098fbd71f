"""Reductions between the threads of a block: shuffles inside of warps, else shared memory.

Values are combined in the order of the threads, neighbours first, so that the order of a tie does not depend on the
form; sums of floats round differently from those that one thread makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError
from tensorlang.ir.expr import Binary, Load, Var
from tensorlang.ir.stmt import Combiner, ThreadReduce
from tensorlang.ir.thread_tags import THREADS
from tensorlang.target.c_source.code import OR, Code, limits
from tensorlang.target.c_source.expressions import element, stored, value
from tensorlang.target.c_source.memory import barrier
from tensorlang.target.c_source.scope import Scope
from tensorlang.target.c_source.shuffle import carrier

_COMMUTATIVE = ("add", "mul", "min", "max", "bitand", "bitor", "bitxor", "and", "or")


@dataclass(frozen=True, slots=True)
class _Team:
    """Threads that reduce together, as C: how many there are, a thread's `position` among them, which team it is in.

    `inside` is empty where every thread is in a team, `lowest` holds for the first thread of a team. `flat` counts the
    threads of the block. `consecutive`: the threads of a team follow each other.
    """

    count: int
    teams: int
    position: str
    number: str
    inside: str
    lowest: str
    flat: str
    consecutive: bool


def thread_reduce(scope: Scope, stmt: ThreadReduce) -> None:
    """Append the lines that combine the values of threads."""
    team = _team(scope, stmt)
    partials = [scope.fresh("partial") for _ in stmt.values]
    for name, expr in zip(partials, stmt.values, strict=True):
        made = value(scope, expr)
        text = f"{team.inside} ? {made.at(OR)} : 0" if team.inside else made.text
        scope.line(f"{carrier(scope.dialect, expr.dtype)} {name} = {text};")
    if team.count > 1:
        warp = scope.dialect.warps
        powers = team.count & (team.count - 1) == 0
        if warp and team.consecutive and (team.count % warp == 0 or (powers and team.count < warp)):
            _by_shuffles(scope, stmt, team, partials)
        else:
            _by_tree(scope, stmt, team, partials)
    _into_targets(scope, stmt, team, partials)


def _team(scope: Scope, stmt: ThreadReduce) -> _Team:
    taking = {THREADS.index(tag): count for tag, count in stmt.threads}
    names = [scope.variables[tag].text for tag in THREADS]
    extents = scope.block
    members = [(names[k], n) for k, n in sorted(taking.items()) if extents[k] > 1]
    others = [(names[k], n) for k, n in enumerate(extents) if k not in taking and n > 1]
    partial = [(k, n) for k, n in taking.items() if n < extents[k]]
    last = max((k for k, n in taking.items() if extents[k] > 1), default=-1)
    consecutive = not partial and all(extents[k] == 1 for k in range(last) if k not in taking)
    return _Team(
        count=prod(n for _, n in members),
        teams=prod(n for _, n in others),
        position=_number(members),
        number=_number(others),
        inside=" && ".join(f"{names[k]} < {n}" for k, n in partial),
        lowest=" && ".join(f"{name} == 0" for name, _ in members),
        flat=_number([(n, e) for n, e in zip(names, extents, strict=True) if e > 1]),
        consecutive=consecutive,
    )


def _number(digits: Sequence[tuple[str, int]]) -> str:
    """Digits with their bases, the lowest first, as one number."""
    text = "0"
    for name, base in reversed(digits):
        text = name if text == "0" else f"{name} + {base} * {text if text.isidentifier() else f'({text})'}"
    return text


def _by_shuffles(scope: Scope, stmt: ThreadReduce, team: _Team, partials: list[str]) -> None:
    warp = scope.dialect.warps
    width = min(team.count, warp)
    mask = f"0x{2**warp - 1:x}u"
    threads, flat = prod(scope.block), _grouped(team.flat)
    if threads < warp:
        mask = f"0x{2**threads - 1:x}u"
    elif threads % warp:
        mask = f"({flat} < {threads - threads % warp} ? {mask} : 0x{2 ** (threads % warp) - 1:x}u)"
    commutes = _commutes(stmt.combiner)
    step = scope.fresh("offset", kept=False)
    scope.pragma("unroll")
    scope.line(f"for (int {step} = 1; {step} < {width}; {step} *= 2) {{")
    inner = scope.deeper
    shuffle = "__shfl_xor_sync" if commutes else "__shfl_down_sync"
    _combine_with(inner, stmt, partials, [f"{shuffle}({mask}, {p}, {step}, {width})" for p in partials])
    scope.line("}")
    if team.count > warp:
        _across_warps(scope, stmt, team, partials)
    elif not commutes:
        for name in partials:
            scope.line(f"{name} = __shfl_sync({mask}, {name}, 0, {width});")


def _across_warps(scope: Scope, stmt: ThreadReduce, team: _Team, partials: list[str]) -> None:
    """Each warp has its own value: the threads of a team combine those of its warps."""
    warp, flat = scope.dialect.warps, _grouped(team.flat)
    warps = team.count // warp
    held = _scratch(scope, stmt, prod(scope.block) // warp)
    scope.line(f"if ({flat} % {warp} == 0) {{")
    for array, name in zip(held, partials, strict=True):
        scope.deeper.line(f"{array}[{flat} / {warp}] = {name};")
    scope.line("}")
    scope.line(barrier(scope))
    first = f"{flat} / {team.count} * {warps}" if team.teams > 1 else "0"
    for array, name in zip(held, partials, strict=True):
        scope.line(f"{name} = {array}[{first}];")
    at = scope.fresh("warp", kept=False)
    scope.pragma("unroll")
    scope.line(f"for (int {at} = 1; {at} < {warps}; ++{at}) {{")
    place = f"{first} + {at}" if first != "0" else at
    _combine_with(scope.deeper, stmt, partials, [f"{array}[{place}]" for array in held])
    scope.line("}")
    scope.line(barrier(scope))


def _by_tree(scope: Scope, stmt: ThreadReduce, team: _Team, partials: list[str]) -> None:
    """Halve the number of values in shared memory until one is left."""
    held = _scratch(scope, stmt, team.count * team.teams)
    start = "0" if team.teams == 1 else f"{team.count} * {_grouped(team.number)}"
    position, slot = scope.fresh("position"), scope.fresh("slot")
    scope.line(f"const int {position} = {team.position};")
    scope.line(f"const int {slot} = {position if start == '0' else f'{start} + {position}'};")
    inside = scope
    if team.inside:
        scope.line(f"if ({team.inside}) {{")
        inside = scope.deeper
    for array, name in zip(held, partials, strict=True):
        inside.line(f"{array}[{slot}] = {name};")
    if team.inside:
        scope.line("}")
    scope.line(barrier(scope))
    step = scope.fresh("offset", kept=False)
    scope.line(f"for (int {step} = 1; {step} < {team.count}; {step} *= 2) {{")
    test = f"{position} % (2 * {step}) == 0 && {position} + {step} < {team.count}"
    scope.deeper.line(f"if ({f'{team.inside} && ' if team.inside else ''}{test}) {{")
    inner = scope.deeper.deeper
    _combine_with(inner, stmt, partials, [f"{array}[{slot} + {step}]" for array in held])
    for array, name in zip(held, partials, strict=True):
        inner.line(f"{array}[{slot}] = {name};")
    scope.deeper.line("}")
    scope.deeper.line(barrier(scope))
    scope.line("}")
    for array, name in zip(held, partials, strict=True):
        scope.line(f"{name} = {array}[{start}];")
    scope.line(barrier(scope))


def _into_targets(scope: Scope, stmt: ThreadReduce, team: _Team, partials: list[str]) -> None:
    """Combine the result into the targets."""
    own = {scope.storage(buffer).space == "local" for buffer, _ in stmt.targets}
    if len(own) > 1:
        raise InternalError("a reduction between threads has targets of one thread and of all")
    test = team.inside if own == {True} else team.lowest
    inner = scope.deeper if test else scope
    if test:
        scope.line(f"if ({test}) {{")
    combiner, bound = stmt.combiner, inner
    old = [Load(buffer, where) for buffer, where in stmt.targets]
    for var, load in zip(combiner.lhs, old, strict=True):
        bound = bound.bind(var.name, replace(value(inner, load), dtype=var.dtype))
    for var, name in zip(combiner.rhs, partials, strict=True):
        bound = bound.bind(var.name, Code(name, var.dtype, interval=limits(var.dtype)))
    made = [stored(bound, value(bound, result)) for result in combiner.results]
    places = [element(inner, buffer, where) for buffer, where in stmt.targets]
    if len(made) > 1:
        names = [inner.fresh("combined") for _ in made]
        for name, text, (buffer, _) in zip(names, made, stmt.targets, strict=True):
            inner.line(f"const {scope.dialect.word(buffer.dtype)} {name} = {text};")
        made = names
    for place, text in zip(places, made, strict=True):
        inner.line(f"{place} = {text};")
    if test:
        scope.line("}")


def _combine_with(scope: Scope, stmt: ThreadReduce, partials: list[str], others: list[str]) -> None:
    """`partials` combined with the values of threads behind."""
    combiner = stmt.combiner
    bound = scope
    names = [scope.fresh("other") for _ in others]
    for name, text, var in zip(names, others, combiner.rhs, strict=True):
        scope.line(f"const {carrier(scope.dialect, var.dtype)} {name} = {text};")
    pairs = [*zip(combiner.lhs, partials, strict=True), *zip(combiner.rhs, names, strict=True)]
    for var, name in pairs:
        bound = bound.bind(var.name, Code(name, var.dtype, interval=limits(var.dtype)))
    made = [value(bound, result).text for result in combiner.results]
    if len(made) > 1:
        fresh = [scope.fresh("combined") for _ in made]
        for name, text, var in zip(fresh, made, combiner.lhs, strict=True):
            scope.line(f"const {carrier(scope.dialect, var.dtype)} {name} = {text};")
        made = fresh
    for name, text in zip(partials, made, strict=True):
        scope.line(f"{name} = {text};")


def _scratch(scope: Scope, stmt: ThreadReduce, count: int) -> list[str]:
    """Declare pointers into the shared memory of reductions, for so many values of each kind."""
    names, offset, qualifier = [], 0, scope.dialect.spaces["shared"]
    for expr in stmt.values:
        type_ = carrier(scope.dialect, expr.dtype)
        name = scope.fresh("scratch")
        at = "reduce_scratch" if not offset else f"(reduce_scratch + {offset})"
        scope.line(f"{qualifier}{type_} *{name} = ({qualifier}{type_} *){at};")
        names.append(name)
        offset += -(-count * max(4, dtypes.info(expr.dtype).bytes) // 16) * 16
    scope.text.scratch_bytes = max(scope.text.scratch_bytes, offset)
    return names


def _commutes(combiner: Combiner) -> bool:
    """Whether the order of two values makes no difference."""
    match combiner.results:
        case (Binary(op=op, a=Var() as a, b=Var() as b),):
            return op in _COMMUTATIVE and {a.name, b.name} == {combiner.lhs[0].name, combiner.rhs[0].name}
    return False


def _grouped(text: str) -> str:
    return text if text.isidentifier() or text.isdigit() else f"({text})"
