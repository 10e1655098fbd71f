"""isl's scheduler: an order of the statements of a stage with short dependences, and parallel and tilable loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Const, Expr, binary
from tensorlang.ir.stmt import INDEX
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import dims
from tensorlang.polyhedral.hyperplanes import time_pairs
from tensorlang.polyhedral.legality import TimeSpace
from tensorlang.polyhedral.statement import Role, Scop, Statement


@dataclass(frozen=True, slots=True)
class Position:
    """When an instance runs: a combination of the loops of its statement, and a constant part of sizes."""

    factors: tuple[int, ...]
    start: Expr


@dataclass(frozen=True, slots=True)
class Member:
    """One loop of a band: the position of every statement in it. `coincident`: no dependence joins two iterations."""

    positions: Mapping[str, Position]
    coincident: bool


@dataclass(frozen=True, slots=True)
class Band:
    """Loops inside each other, outermost first; `permutable`: they may change places, and be tiled."""

    members: tuple[Member, ...]
    permutable: bool
    child: Node


@dataclass(frozen=True, slots=True)
class Series:
    """Groups of statements, one group after the other."""

    groups: tuple[tuple[frozenset[str], Node], ...]


Node: TypeAlias = Band | Series | None


def propose(scop: Scop, stage: str) -> tuple[Node, frozenset[str]]:
    """Return isl's order of the statements of a stage, in terms of the loops that they have now; and which it orders.

    Statements that never run are in no order.

    Reductions bind the parallel loops, and not the order. An initialisation follows its updates and is left out.
    """
    chosen = [s for s in scop.statements if s.stage == stage and s.role is not Role.INIT]
    numbers = {s.name: k for k, s in enumerate(chosen)}
    plain = tuple(replace(s, lanes=()) for s in scop.statements)
    loops = frozenset(loop for s in chosen for loop in s.loops)
    scop = replace(scop, statements=plain, unordered=loops)
    space = TimeSpace(scop)
    families = list(time_pairs(scop, space, reductions=True))
    instances = _instances(space, chosen, numbers)
    order = isl.no_pairs()
    reductions = isl.no_pairs()
    for kind, _, pairs in families:
        if kind == "reduction":
            reductions = reductions.union(_between(pairs.intersect(isl.lex_lt(space.length)), instances))
        else:
            order = order.union(_between(pairs, instances))
    context = isl.make_set(f"{space.namer.prefix()}{{ : {space.namer.context() or '0 = 0'} }}")
    tree = isl.schedule_of(instances.range(), context, order, reductions)
    reader = _Reader(space, chosen)
    return reader.node(tree.get_root().child(0)), reader.names(instances.range())


def _instances(space: TimeSpace, chosen: list[Statement], numbers: Mapping[str, int]) -> isl.UnionMap:
    """`time -> Q0[loops]` of the chosen statements."""
    pieces = []
    for s in chosen:
        at = f"Q{numbers[s.name]}[{', '.join(dims(s.loops).values())}]"
        pieces.append(f"[{space.vector(s)}] -> {at} : {space.domains[s.name]}")
    return isl.make_union_map(f"{space.namer.prefix()}{{ {'; '.join(pieces)} }}")


def _between(pairs: isl.Map, instances: isl.UnionMap) -> isl.UnionMap:
    return instances.reverse().apply_range(isl.as_union(pairs)).apply_range(instances)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads isl's schedule tree."""

    space: TimeSpace
    chosen: list[Statement]

    def node(self, node: isl.ScheduleNode) -> Node:
        kind = node.get_type()
        if kind == isl.ScheduleNodeType.band:
            members = tuple(self._member(node, k) for k in range(node.band_n_member()))
            return Band(members, bool(node.band_get_permutable()), self.node(node.child(0)))
        if kind in (isl.ScheduleNodeType.sequence, isl.ScheduleNodeType.set):
            children = [node.child(k) for k in range(node.n_children())]
            return Series(tuple((self.names(c.filter_get_filter()), self.node(c.child(0))) for c in children))
        return None

    def names(self, instances: isl.UnionSet) -> frozenset[str]:
        """The statements that have instances."""
        found = instances.get_set_list()
        names = (found.get_at(k).get_tuple_name() for k in range(found.n_set()))
        return frozenset(self._statement(name).name for name in names)

    def _statement(self, name: str) -> Statement:
        return self.chosen[int(name[1:])]

    def _member(self, band: isl.ScheduleNode, number: int) -> Member:
        parts = band.band_get_partial_schedule().get_union_pw_aff(number).get_pw_aff_list()
        found = {}
        for k in range(parts.n_pw_aff()):
            for _, form in parts.get_at(k).get_pieces():
                statement = self._statement(form.get_domain_space().get_tuple_name(isl.DIM.set))
                position = self._position(form)
                if position is not None:
                    found[statement.name] = position
        return Member(found, bool(band.band_member_get_coincident(number)))

    def _position(self, form: isl.Aff) -> Position | None:
        """The parts of a quasi-affine form; None when it divides."""
        if form.dim(isl.DIM.div) or not form.get_denominator_val().is_one():
            return None
        factors = tuple(isl.number(form.get_coefficient_val(isl.DIM.in_, k)) for k in range(form.dim(isl.DIM.in_)))
        start: Expr = Const(isl.number(form.get_constant_val()), INDEX)
        for k in range(form.dim(isl.DIM.param)):
            factor = isl.number(form.get_coefficient_val(isl.DIM.param, k))
            if factor:
                size = self.space.namer.parameters[form.get_dim_name(isl.DIM.param, k)]
                start = binary("add", start, binary("mul", size, factor))
        return Position(factors, start)
