"""The instances that generated code runs, compared with those wanted: all of them, and each once.

Boxes are counted; all else isl compares. Its time grows fast with the number of dims, and with what is divided. Loops
that have nothing to do with others are compared at one of their values; and loops whose domain divides them, in the
digits that it asks for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tensorlang.errors import InternalError
from tensorlang.ir.expr import Binary, Const, Expr, Var, binary, same, substitute, variables, walk
from tensorlang.ir.stmt import INDEX
from tensorlang.lowering.read_back.boxes import are_filled
from tensorlang.lowering.read_back.runs import Run
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer, condition_text, dims
from tensorlang.polyhedral.rows import Rows
from tensorlang.polyhedral.statement import Bounds, Scop, Statement, constant_bounds
from tensorlang.polyhedral.tiles import scanned


def check_instances(statement: Statement, runs: Sequence[Run], scop: Scop) -> None:
    """Raise InternalError unless the runs of a part of a statement are the wanted instances, each of them once.

    What threads run for themselves, each of them runs once, if at all.
    """
    bounds = constant_bounds(statement.domain, statement.loops)
    if are_filled(statement, bounds, runs):
        return
    namer = Namer(scop.sizes)
    alike = _alike(statement, bounds, runs)
    divisors = {name: found for name, found in _divisors(statement, bounds).items() if name not in alike}
    wanted = _wanted(statement, bounds, alike, divisors, namer)
    runs = [_compared(run, statement, alike, divisors) for run in runs]
    telling = _telling(runs)
    threads = tuple(dict.fromkeys(name for run in runs for name in run.threads))
    pieces = [_piece(run, telling, threads, namer) for run in runs]
    context = isl.make_set(f"{namer.prefix()}{{ : {namer.context()} }}")
    wanted = wanted.intersect_params(context)
    if not pieces:
        if not wanted.is_empty():
            raise InternalError(f"no code runs {statement.name}, though {wanted} should run")
        return
    made = isl.union_of(pieces).intersect_params(context)
    instances = made.range()
    if threads:
        instances = instances.project_out(isl.DIM.set, instances.dim(isl.DIM.set) - len(threads), len(threads))
    instances = isl.coalesced(instances)
    for word, these, those in (("runs", instances, wanted), ("does not run", wanted, instances)):
        if not these.is_subset(those):
            found = these.subtract(those).sample_point()
            raise InternalError(f"the generated code {word} {statement.name} at {found}")
    if not made.is_injective():
        raise InternalError(f"the generated code runs an instance of {statement.name} twice")


def _alike(statement: Statement, bounds: Bounds, runs: Sequence[Run]) -> dict[str, Expr]:
    """The loops that neither the domain nor a run relates to others, by their first value.

    They have the same constant bounds in all runs, in each as a loop of its own, or as a number. All else is the same
    at each of their values: it is compared at the first one.
    """
    uses = [Counter(name for value in r.values for name in variables(value)) for r in runs]
    found: dict[str, Expr] = {}
    for name, (low, end, alone) in bounds.items():
        k, first = statement.loops.index(name), Const(low, INDEX)
        values = [r.values[k] for r in runs]
        if end == low + 1 and all(same(value, first) for value in values):
            found[name] = first
        elif end > low and alone:
            made = zip(values, runs, uses, strict=True)
            if all(
                isinstance(v, Var) and r.bounds.get(v.name) == (low, end, True) and u[v.name] == 1 for v, r, u in made
            ):
                found[name] = first
    return found


def _divisors(statement: Statement, bounds: Bounds) -> dict[str, list[int]]:
    """What the domain divides loops by that are at least 0: large divisors first, each a multiple of the next."""
    found: dict[str, set[int]] = {}
    for node in (n for condition in statement.domain for n in walk(condition)):
        match node:
            case Binary("floordiv" | "floormod", Var(name), Const(int(number))) if number > 1:
                if name in bounds and bounds[name][0] >= 0 and number < bounds[name][1]:
                    found.setdefault(name, set()).add(number)
    chains: dict[str, list[int]] = {name: [] for name in found}
    for name, chain in chains.items():
        for number in sorted(found[name], reverse=True):
            if not chain or chain[-1] % number == 0:
                chain.append(number)
    return chains


def _in_digits(value: Expr, divisors: Sequence[int]) -> list[Expr]:
    """Quotients and remainders that a number is made of: with them, nothing that was divided has to be any more."""
    found = []
    for divisor in divisors:
        found.append(binary("floordiv", value, divisor))
        value = binary("floormod", value, divisor)
    return [*found, value]


def _wanted(
    statement: Statement,
    bounds: Bounds,
    alike: Mapping[str, Expr],
    divisors: Mapping[str, Sequence[int]],
    namer: Namer,
) -> isl.Set:
    """The instances of a statement's domain, some loops in digits."""
    known, counts = dict(alike), dict[str, int | None]()
    for name in (n for n in statement.loops if n not in alike):
        if name not in divisors:
            counts[name] = None
            continue
        value: Expr = Const(0, INDEX)
        above = bounds[name][1] + divisors[name][0] - 1
        for k, unit in enumerate([*divisors[name], 1]):
            digit = Var(f"{name}.{k}", INDEX)
            value = binary("add", value, binary("mul", digit, unit))
            counts[digit.name], above = above // unit, unit
        known[name] = value
    rows = Rows(dims(list(counts)), namer)
    rows.ranges = {rows.names[name]: (0, count - 1) for name, count in counts.items() if count is not None}
    for name, count in counts.items():
        if count is not None:
            rows.bound(rows.names[name], {"": count})
    # A product of loops that the code tests may be linear now.
    names, unnamed = dims(statement.loops), Namer(namer.sizes)
    seen = [c for c in scanned(statement) if condition_text(c, names, unnamed) is not None]
    rows.require(substitute(c, known) for c in seen)
    return rows.make(list(rows.names.values()), []).domain()


def _compared(run: Run, statement: Statement, alike: Mapping[str, Expr], divisors: Mapping[str, Sequence[int]]) -> Run:
    """A run at the first values of loops that are alike, and with others in digits."""
    pairs = list(zip(statement.loops, run.values, strict=True))
    gone = {value.name: alike[name] for name, value in pairs if name in alike and isinstance(value, Var)}
    return replace(
        run,
        values=tuple(
            v for name, value in pairs if name not in alike for v in _in_digits(value, divisors.get(name, ()))
        ),
        loops=tuple(name for name in run.loops if name not in gone),
        conditions=tuple(substitute(c, gone) for c in run.conditions),
        time=tuple(0 if part in gone else part for part in run.time),
        threads=tuple(name for name in run.threads if name not in gone),
    )


def _telling(runs: Sequence[Run]) -> list[int]:
    """The entries of the times of runs that are not the same number in all of them."""
    length = max((len(r.time) for r in runs), default=0)
    columns = zip(*(_padded(r, length) for r in runs), strict=True)
    return [k for k, entries in enumerate(columns) if len(set(entries)) > 1 or isinstance(entries[0], str)]


def _padded(run: Run, length: int) -> tuple[int | str, ...]:
    return (*run.time, *(0 for _ in range(length - len(run.time))))


def _piece(run: Run, telling: Sequence[int], threads: Sequence[str], namer: Namer) -> isl.Map:
    """The times of a run -> its instances, and the threads that run them for themselves."""
    bounds = run.bounds
    names = dims(run.loops)
    rows = Rows(names, namer, {names[name]: (low, end - 1) for name, (low, end, _) in bounds.items()})
    rows.require(run.conditions)
    when: list[str] = []
    for k in telling:
        entry = run.time[k] if k < len(run.time) else 0
        when.append(rows.names[entry] if isinstance(entry, str) else f"t{k}")
        if isinstance(entry, int):
            rows.equate(when[-1], {"": entry} if entry else {})
    values = {f"v{k}": rows.form(value) for k, value in enumerate(run.values)}
    values |= {f"w{k}": {names[tag]: 1} if tag in run.threads else {} for k, tag in enumerate(threads)}
    for dim, row in values.items():
        rows.exact &= row is not None
        rows.equate(dim, row or {})
    if not rows.exact:
        raise InternalError(f"the generated code has a bound or a test that isl did not make: {run.conditions}")
    return rows.make(when, list(values))
