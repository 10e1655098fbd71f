"""A tree and its statements as one isl schedule tree: a text with a 1-D band and a mark per axis.

Statements stand in axis space, so each band counts the values of one axis: one apart, or `unit` apart (see `scan`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tensorlang.dataclass import dataclass
from tensorlang.ir.affine import affine
from tensorlang.ir.expr import Binary, Const, Expr, Var, variables, walk
from tensorlang.polyhedral.affine_text import Namer, conditions_text, dims
from tensorlang.polyhedral.nest import Leaf, Loop, Tree, leaves
from tensorlang.polyhedral.nest import Sequence as Branches
from tensorlang.polyhedral.nest import loops as loops_of
from tensorlang.polyhedral.statement import Scop, Statement, constant_bounds
from tensorlang.polyhedral.tiles import isolate_option, scanned


def schedule_text(tree: Tree, scop: Scop, unit: int = 1) -> tuple[str, Spaces]:
    """Return the isl schedule tree as YAML text, and what its names mean."""
    spaces = Spaces(scop.statements, _plain(tree, scop.statements), Namer(scop.sizes), unit)
    domains = [spaces.domain(k) for k in range(len(scop.statements))]
    used = sorted(leaves(tree))
    body = spaces.node(tree, ())
    domain = "; ".join(domains[k] for k in used)
    child = "" if body == "{ }" else f", child: {body}"
    return f'{{ domain: "{spaces.namer.prefix()}{{ {domain} }}"{child} }}', spaces


def wide_unit(statements: Sequence[Statement]) -> int:
    """A power of two above every number that a condition multiplies or divides by."""
    nodes = (node for s in statements for condition in scanned(s) for node in walk(condition))
    factors = [abs(int(n.value)) for node in nodes if isinstance(node, Binary) for n in _factors(node)]
    return 1 << max(2, *factors).bit_length()


def is_simple(statements: Sequence[Statement]) -> bool:
    """Whether all conditions are lower bounds of single loops, or upper bounds of what grows with all loops.

    Without any of its loops such a domain is where that loop is least: nothing has to be divided.
    """
    return all(_bounds_one_way(c, frozenset(s.loops)) for s in statements for c in scanned(s))


def _bounds_one_way(condition: Expr, loops: frozenset[str]) -> bool:
    match condition:
        case Binary("ge", Var(), Const()):
            return True
        case Binary("lt" | "le", total, limit):
            form = affine(total)
            return form is not None and not loops & set(variables(limit)) and all(form.get(v, 0) >= 0 for v in loops)
    return False


def _factors(node: Binary) -> Iterator[Const]:
    if node.op in ("mul", "floordiv", "floormod"):
        yield from (side for side in (node.a, node.b) if isinstance(side, Const))


def _plain(tree: Tree, statements: Sequence[Statement]) -> dict[str, tuple[int, int]]:
    """The loops from one number up to another, whatever other loops do; those of one iteration may be in conditions.

    isl, whose time grows fast with the number of bands, need not know them. Those to peel stay: isl makes their tiles.
    """
    known = [constant_bounds(s.domain, s.loops) for s in statements]
    found: dict[str, tuple[int, int]] = {}
    inside: dict[str, set[int]] = {}
    peeled = {loop.name for loop in loops_of(tree) if loop.peel}
    for loop in loops_of(tree):
        inside.setdefault(loop.name, set()).update(leaves(loop))
    for name, numbers in inside.items():
        bounds = {known[k].get(name) for k in numbers}
        if None in bounds or name in peeled or len({bound[:2] for bound in bounds if bound}) != 1:
            continue
        lower, upper = next(bound[:2] for bound in bounds if bound)
        if upper == lower + 1 or (upper > lower and all(bound[2] for bound in bounds if bound)):
            found[name] = lower, upper
    return found


@dataclass(frozen=True, slots=True)
class Spaces:
    """The statements as isl sees them: `plain` loops are left out, with their first value in conditions."""

    statements: tuple[Statement, ...]
    plain: Mapping[str, tuple[int, int]]
    namer: Namer
    unit: int

    def context(self) -> str:
        """What is known of the sizes."""
        return f"{self.namer.prefix()}{{ : {self.namer.context()} }}"

    def names(self, number: int) -> dict[str, str]:
        """Loops as dims, or as numbers."""
        found = dims(self.statements[number].loops)
        return {name: str(self.plain[name][0]) if name in self.plain else dim for name, dim in found.items()}

    def instance(self, number: int) -> str:
        """The tuple of a statement."""
        kept = [dim for name, dim in self.names(number).items() if name not in self.plain]
        return f"S{number}[{', '.join(kept)}]"

    def domain(self, number: int) -> str:
        """The instances of a statement."""
        conditions = [c for c in scanned(self.statements[number]) if not self._is_met(c)]
        where, _ = conditions_text(conditions, self.names(number), self.namer)
        return f"{self.instance(number)} : {where}"

    def _is_met(self, condition: Expr) -> bool:
        """Whether a condition is a bound of a plain loop."""
        match condition:
            case Binary("ge" | "lt", Var(name), Const()):
                return name in self.plain
        return False

    def node(self, tree: Tree, path: tuple[str, ...]) -> str:
        """A schedule tree inside some bands, as text."""
        match tree:
            case Leaf():
                return "{ }"
            case Branches():
                filters = []
                for child in tree.children:
                    below = "; ".join(self.instance(k) for k in leaves(child))
                    filters.append(f'{{ filter: "{{ {below} }}"{_child(self.node(child, path))} }}')
                return f"{{ sequence: [ {', '.join(filters)} ] }}"
            case Loop():
                inside = self._within(tree.body, path) if tree.name in self.plain else self._band(tree, path)
                return f'{{ mark: "{tree.name}", child: {inside} }}'

    def _within(self, body: Tree, path: tuple[str, ...]) -> str:
        """What stands below a mark, which isl wants to be something."""
        if isinstance(body, Leaf):
            return f'{{ sequence: [ {{ filter: "{{ {self.instance(body.statement)} }}" }} ] }}'
        return self.node(body, path)

    def _band(self, loop: Loop, path: tuple[str, ...]) -> str:
        apart = "" if self.unit == 1 else f"{self.unit}*"
        maps = [f"{self.instance(k)} -> [{apart}{self.names(k)[loop.name]}]" for k in leaves(loop)]
        option = isolate_option(loop, self.statements, path, self.namer, self.unit) if loop.peel else None
        options = f', options: "{option}"' if option else ""
        inside = self.node(loop.body, (*path, loop.name))
        return f'{{ schedule: "[{{ {"; ".join(maps)} }}]"{options}{_child(inside)} }}'


def _child(text: str) -> str:
    return "" if text == "{ }" else f", child: {text}"
