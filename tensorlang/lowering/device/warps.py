"""What the lanes of a warp have in registers: that each thread uses its own elements of it, and no other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tensorlang.errors import TargetError
from tensorlang.ir.expr import binary
from tensorlang.ir.fragment import Fragment
from tensorlang.ir.simplify import proves
from tensorlang.ir.spread import group_of
from tensorlang.ir.stmt import Allocate, CallMachine, For, Let, Seq, Stmt, children, map_children
from tensorlang.ir.stmt import walk as statements
from tensorlang.ir.warp_arrays import WARP, fragments, held, lane_axes, lane_of
from tensorlang.lowering.device.arrays import Element, accesses, used
from tensorlang.lowering.device.ranges import Ranges, inside, range_of
from tensorlang.lowering.device.threads import is_thread_loop


def check_groups(nest: Stmt, block: Mapping[str, int]) -> None:
    """Raise TargetError unless the threads of a nest fit the machine code that several of them run together.

    They are neighbours; no loop around the code goes over them, and what they hold is used by no other threads.
    """
    owners: dict[str, frozenset[str]] = {}
    held_by = fragments(nest)

    def visit(stmt: Stmt, bound: frozenset[str]) -> None:
        if isinstance(stmt, Allocate) and stmt.buffer.scope == WARP:
            owners[stmt.buffer.name] = bound | frozenset(stmt.threads)
        if isinstance(stmt, CallMachine) and stmt.code.lanes:
            lane_of(block, stmt.code)
            axes = lane_axes(block, stmt.code.lanes)
            if axes is not None and bound & set(axes):
                raise TargetError(
                    f"{stmt.code.name} is run by the threads along {' and '.join(axes)} together, and stands in a loop "
                    f"on {sorted(bound & set(axes))[0]}; compute its stage outside of that loop (compute_at)"
                )
        inner = bound | {stmt.thread} if isinstance(stmt, For) and is_thread_loop(stmt) else bound
        leaf = isinstance(stmt, CallMachine) or not children(stmt)
        for name in used(stmt) & owners.keys() if leaf else ():
            lanes = lane_axes(block, held_by[name].lanes) or () if name in held_by else group_of(name, block).axes
            others = sorted(inner - owners[name] - set(lanes))
            if others:
                raise TargetError(
                    f"{name} is in the registers of a warp, and the threads along {others[0]} use it too; compute it "
                    f"inside their loop (compute_at), or put it into shared memory"
                )
        for child in () if leaf else children(stmt):
            visit(child, inner)

    visit(nest, frozenset())


def check_own(body: Stmt, block: Mapping[str, int], ranges: Ranges) -> None:
    """Raise TargetError where a thread uses an element that another lane holds, machine code aside."""
    arrays = fragments(body)
    codes = {s.code.lanes: s.code for s in statements(body) if isinstance(s, CallMachine) and s.code.lanes}
    lanes = {name: lane_of(block, codes[fragment.lanes]) for name, fragment in arrays.items()}

    def check(elements: Iterable[Element], around: Ranges) -> None:
        for buffer, index in elements:
            if buffer.scope != WARP:
                continue
            fragment, own = arrays[buffer.name], lanes[buffer.name]
            at = held(buffer, fragment, index, around)
            if not proves(binary("eq", at.lane, own), around):
                raise TargetError(
                    f"a thread uses {buffer.name}[{', '.join(map(str, index))}], which lane {at.lane} of its warp "
                    f"holds, not itself ({own}); split and bind the loops as the fragment of {buffer.name} "
                    f"({fragment}) distributes it: {_splits(fragment)}; or copy it to shared memory (cache_read)"
                )

    def visit(stmt: Stmt, around: Ranges) -> None:
        if isinstance(stmt, CallMachine):
            return
        check(_own_accesses(stmt), around)
        if isinstance(stmt, For):
            around = inside(stmt, around)
        elif isinstance(stmt, Let):
            around = {**around, stmt.var.name: range_of(stmt.value, around)}
        for child in children(stmt):
            visit(child, around)

    if arrays:
        visit(body, ranges)


def _own_accesses(stmt: Stmt) -> Iterator[Element]:
    """The elements that a statement uses outside of the statements in it."""
    return accesses(map_children(stmt, lambda s: Seq(())))


def _splits(fragment: Fragment) -> str:
    """How the rows and the columns of a fragment are made of lanes and registers, outer parts first."""
    texts = []
    for word, side, digits in (("rows", fragment.rows, fragment.row), ("columns", fragment.columns, fragment.column)):
        parts = [
            f"{d.modulus} of {'lanes' if d.of == 'lane' else 'one thread'}"
            for d in sorted(digits, key=lambda d: d.scale, reverse=True)
        ]
        texts.append(f"{side} {word} are {', each '.join(parts)}")
    return "; ".join(texts)
