"""The only importer of islpy: sets and maps from text, and the operation budget.

islpy's `==` is mathematical while its `hash` is structural: never key a dict by an isl object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, reduce
from typing import Any, TypeAlias, TypeVar, cast

import islpy

from tensorlang.limits import LARGEST, check_time

T = TypeVar("T")
Set: TypeAlias = Any
Map: TypeAlias = Any
UnionMap: TypeAlias = Any
UnionSet: TypeAlias = Any
Aff: TypeAlias = Any
ScheduleNode: TypeAlias = Any
PwAff: TypeAlias = Any
AstExpr: TypeAlias = Any
AstNode: TypeAlias = Any
Entries: TypeAlias = Sequence[tuple[int, int]]
"""The columns of a row that are not 0, with their numbers."""

DIM: TypeAlias = islpy.dim_type
ExprType = islpy.ast_expr_type
NodeType = islpy.ast_node_type
ScheduleNodeType = islpy.schedule_node_type
OpType = islpy.ast_expr_op_type
AstBuild = islpy.AstBuild
Schedule = islpy.Schedule


# One iteration of a band stays in one place: a tile-local array lives no longer than the code around it.
islpy.DEFAULT_CONTEXT.set_ast_build_group_coscheduled(1)
# The scheduler's search for loops to keep apart can take minutes where extents are constant.
islpy.DEFAULT_CONTEXT.set_schedule_treat_coalescing(0)


FARKAS = 20
"""The most constraints of a set whose dual is computed."""


class BudgetExceeded(Exception):
    """isl needed more operations than allowed."""


class NumberTooLarge(BudgetExceeded):
    """A coefficient is larger than what loops may compute with."""

    def __init__(self, number: int) -> None:
        super().__init__(f"its loops would compute with a number of {number.bit_length()} bits; they have 64")


def make_set(text: str) -> Set:
    """Parse a set."""
    check_time()
    return _set(text)


def as_set(points: Any) -> Set:
    """A basic set as a set."""
    return islpy.Set.from_basic_set(points)


def make_map(text: str) -> Map:
    """Parse a map."""
    check_time()
    return _map(text)


# Sets and maps never change, and every proof of a schedule asks for half of those of the proof before.
_set, _map = lru_cache(maxsize=1024)(islpy.Set), lru_cache(maxsize=1024)(islpy.Map)


def make_union_map(text: str) -> UnionMap:
    """Parse a union map."""
    return islpy.UnionMap(text)


def map_of_rows(
    parameters: Sequence[str],
    inputs: int,
    outputs: int,
    columns: int,
    zero: Sequence[Entries],
    positive: Sequence[Entries],
) -> Map:
    """The map for which some sums are 0 and others at least 0, in next to no text.

    Columns are the constant, parameters, inputs, outputs, then further dims of which any value will do. Read from one
    table in PolyLib's order (outputs, inputs, further dims, parameters, the constant): islpy loses some memory in each
    call that takes a matrix, and elements are many.
    """
    check_time()
    more = columns - 1 - len(parameters) - inputs - outputs
    begin = inputs + outputs + 1
    places = [columns, *range(begin + more, columns), *range(outputs + 1, begin), *range(1, outputs + 1)]
    places += range(begin, begin + more)
    words = [str(n) for n in (len(zero) + len(positive), columns + 1, outputs, inputs, more, len(parameters))]
    at = len(words)
    words += ["\n0", *("0",) * columns] * len(zero) + ["\n1", *("0",) * columns] * len(positive)
    for rows in (zero, positive):
        for row in rows:
            for column, number in row:
                if abs(number) >= LARGEST:
                    raise NumberTooLarge(number)
                words[at + places[column]] = str(number)
            at += columns + 1
    made = _map(" ".join(words))
    for k, parameter in enumerate(parameters):
        made = made.set_dim_name(DIM.param, k, parameter)
    return made


def union(maps: Sequence[UnionMap]) -> UnionMap:
    """The union of union maps; of none, the empty one."""
    return reduce(lambda a, b: a.union(b), maps, islpy.UnionMap("{ }"))


def union_of(parts: Sequence[Map]) -> Map:
    """The union of maps, or of sets, of one space; at least one."""
    return reduce(lambda a, b: a.union(b), parts)


def one_map(pairs: UnionMap) -> Map | None:
    """The map that a union map over one pair of spaces is; None when it is empty."""
    return None if pairs.is_empty() else islpy.Map.from_union_map(pairs)


def maps_of(pairs: UnionMap) -> list[Map]:
    """The maps of a union map, one per pair of spaces."""
    found = pairs.get_map_list()
    return [found.get_at(k) for k in range(found.n_map())]


def parts_of(points: Set) -> list[Any]:
    """The basic sets of a set."""
    found = points.get_basic_set_list()
    return [found.get_at(k) for k in range(found.n_basic_set())]


def coalesced(points: T) -> T:
    """The same points, or pairs, in fewer parts where isl finds them; as they are where it fails by a fault of its own.

    "original tableau does not correspond to original basic map" is what it says of a few.
    """
    whole: Any = points
    try:
        return cast("T", whole.coalesce())
    except islpy.Error:
        if _exhausted():
            raise
        return points


def parted(points: Set, first: int) -> Map:
    """The first dimensions of points -> the others."""
    pairs = islpy.Map.from_domain(points)
    return pairs.move_dims(DIM.out, 0, DIM.in_, first, points.dim(DIM.set) - first)


def names_of(pairs: Map) -> tuple[str, str]:
    """The names of the tuples of a map."""
    return pairs.get_tuple_name(DIM.in_), pairs.get_tuple_name(DIM.out)


def parameter_names(pairs: Map) -> list[str]:
    """The names of the parameters of a map, in order."""
    return [str(pairs.get_dim_name(DIM.param, k)) for k in range(pairs.dim(DIM.param))]


def named(pairs: Map, name: str) -> Map:
    """A map into a tuple of a name."""
    return pairs.set_tuple_name(DIM.out, name)


def unnamed(pairs: Map) -> Map:
    """A map without the names of its tuples."""
    return pairs.reset_tuple_id(DIM.in_).reset_tuple_id(DIM.out)


def lexicographic_minimum(points: Set) -> list[int]:
    """The first point of a non-empty set without parameters.

    isl's lexmin loses all points of some sets with divided coordinates. Some of them it finds in the same set, read
    from its text; else one coordinate is found after the other.
    """
    found = points.lexmin()
    if found.is_empty():
        points = make_set(str(points))
        found = points.lexmin()
    if not found.is_empty():
        return sample(found)
    first = []
    for k in range(points.dim(DIM.set)):
        least = points.dim_min_val(k)
        points = points.fix_val(DIM.set, k, least)
        first.append(number(least))
    return first


def sample(points: Set) -> list[int]:
    """Any point of a non-empty set without parameters."""
    point = points.sample_point()
    return [number(point.get_coordinate_val(DIM.set, k)) for k in range(points.dim(DIM.set))]


def lex_lt(dims: int) -> Map:
    """Vectors of `dims` entries -> lexicographically later ones."""
    return islpy.Map.lex_lt(islpy.Space.set_alloc(islpy.DEFAULT_CONTEXT, 0, dims))


def parse_schedule(text: str) -> Any:
    """Parse a schedule tree from its YAML text."""
    return islpy.Schedule.read_from_str(islpy.DEFAULT_CONTEXT, text)


def loops_of_schedule(schedule: str, context: str) -> AstNode:
    """The AST of a schedule tree."""
    return AstBuild.from_context(make_set(context)).node_from_schedule(parse_schedule(schedule))


def whole_loops_of_schedule(schedule: str, context: str, as_given: bool) -> tuple[AstNode, bool]:
    """The AST of a schedule tree, and whether isl means to run all instances of the domain in it.

    `as_given`: loops have the values of their bands; otherwise isl may divide those that are some steps apart.
    """
    tree, known = parse_schedule(schedule), make_set(context)
    run: list[UnionSet] = []

    def at_leaf(node: AstNode, build: Any) -> AstNode:
        run.append(build.get_schedule().domain())
        return node

    build, _ = AstBuild.from_context(known).set_at_each_domain(at_leaf)
    islpy.DEFAULT_CONTEXT.set_ast_build_scale_strides(int(not as_given))
    try:
        node = build.node_from_schedule(tree)
    finally:
        islpy.DEFAULT_CONTEXT.set_ast_build_scale_strides(1)
    wanted = tree.get_domain().intersect_params(known)
    return node, wanted.is_subset(reduce(lambda a, b: a.union(b), run)) if run else wanted.is_empty()


def number(value: Any) -> int:
    """Return an isl integer value as int."""
    return int(value.to_python())


def plus(value: PwAff, number: int) -> PwAff:
    """Return a piecewise affine function with a number added."""
    return value.add_constant_val(islpy.Val(number))


def nonnegative_rows(distances: Set) -> Set:
    """All integer rows whose product with every vector of a set is at least 0, for all values of its parameters.

    By Farkas' lemma; existentially quantified dims are dropped first, which leaves fewer rows. Parameters are projected
    out before that: with them the lemma takes seconds for loops that were split. isl does not count what it takes,
    which doubles with every other constraint: BudgetExceeded when there are many.
    """
    free = distances.project_out(DIM.param, 0, distances.dim(DIM.param)).remove_divs()
    if any(part.n_constraint() > FARKAS for part in parts_of(free)):
        raise BudgetExceeded("too many constraints for the lemma of Farkas")
    rows = islpy.Set.from_basic_set(free.coefficients())
    rows = rows.fix_val(DIM.set, 0, islpy.Val(0))  # the constant comes first
    return islpy.Set(str(rows.unwrap().range().reset_tuple_id()).replace("rat: ", ""))


def no_pairs() -> UnionMap:
    """The empty union map."""
    return islpy.UnionMap("{ }")


def as_union(pairs: Map) -> UnionMap:
    """A map as a union map."""
    return islpy.UnionMap.from_map(pairs)


def schedule_of(instances: UnionSet, context: Set, order: UnionMap, reductions: UnionMap) -> Any:
    """isl's schedule of instances: pairs of `order` forward and close, those of `reductions` not at the same time.

    The pairs are taken without the bounds of the instances, which leaves few and small constraints. Where these pairs
    go round in circles, it is asked again with all bounds.
    """
    loose = [pairs.gist_domain(instances).gist_range(instances) for pairs in (order, reductions)]
    try:
        return _schedule(instances, context, *loose)
    except islpy.Error:
        if _exhausted():
            raise
        return _schedule(instances, context, order, reductions)


def _schedule(instances: UnionSet, context: Set, order: UnionMap, reductions: UnionMap) -> Any:
    direct = order.subtract(order.apply_range(order))
    wanted = islpy.ScheduleConstraints.on_domain(instances).set_context(context).set_validity(order)
    return wanted.set_proximity(direct).set_coincidence(order.union(reductions)).compute_schedule()


@contextmanager
def budget(operations: int) -> Iterator[None]:
    """Bound the isl operations of a block; BudgetExceeded when it needs more. Nested blocks keep the outer bound."""
    context = islpy.DEFAULT_CONTEXT
    if context.get_max_operations():
        yield
        return
    context.reset_operations()
    context.set_max_operations(operations)
    try:
        yield
    except (islpy.Error, TypeError) as error:
        if _exhausted():
            raise BudgetExceeded(str(error)) from error
        raise
    finally:
        context.set_max_operations(0)
        context.reset_operations()


def attempt(operations: int, compute: Callable[[], T]) -> T | None:
    """What `compute` returns; None when that needs more isl operations. An outer budget starts again afterwards."""
    context = islpy.DEFAULT_CONTEXT
    outer = context.get_max_operations()
    context.set_max_operations(0)
    try:
        with budget(operations):
            return compute()
    except BudgetExceeded:
        return None
    finally:
        context.set_max_operations(outer)


def _exhausted() -> bool:
    """True when even a small operation fails: what failed first may have told another story (a syntax error)."""
    try:
        islpy.Set("{ [i] : i = 0 }")
    except islpy.Error as probe:
        return "operations" in str(probe)
    return False
