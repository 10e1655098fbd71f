"""What a declared intrinsic is, and what is checked when it is declared."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Literal, TypeAlias

from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir.affine import Affine
from tensorlang.ir.expr import Buffer, Const, Expr, Load, Var, variables, walk
from tensorlang.ir.linear import linear
from tensorlang.ir.machine import MachineExpr, Pointer, VectorLoad
from tensorlang.ir.printer import stmt_text
from tensorlang.ir.stmt import Allocate, For, If, MachineCode, Stmt, Store, children, stmt_exprs
from tensorlang.ir.stmt import walk as statements
from tensorlang.location import Location
from tensorlang.te.operation import ComputeOp, buffers, loads
from tensorlang.te.program import Program
from tensorlang.te.tile_buffer import TileBuffer

Variant = Literal["body", "reset", "update"]
Access: TypeAlias = tuple[Buffer, tuple[Expr, ...], bool]


@dataclass(frozen=True, eq=False)
class TensorIntrin:
    """A declared intrinsic: `program` is what it computes, the variants are how.

    `buffers` are the tiles of the program's inputs and outputs by name, in the order in which the body got them. `body`
    does the whole computation; `reset` sets the start of its reduction, and `update` adds to what is there. With
    `lanes`, as many neighbouring threads run it together. What adds only begins to, if there is a `group`. Before and
    after its statements the functions `around` them are called, as MachineCode has it.
    """

    name: str
    program: Program
    buffers: Mapping[str, TileBuffer]
    body: Stmt
    reset: Stmt | None
    update: Stmt | None
    architecture: str
    features: tuple[str, ...]
    source: str
    location: Location
    lanes: int = 0
    group: str = ""
    around: tuple[str, str] | None = None

    @property
    def op(self) -> ComputeOp:
        """The declared computation."""
        found = self.program[self.program.outputs[0]]
        assert isinstance(found, ComputeOp)
        return found

    def variant(self, name: Variant) -> Stmt | None:
        """The statements of a variant, or None."""
        return {"body": self.body, "reset": self.reset, "update": self.update}[name]

    def names(self, name: Variant) -> tuple[str, ...]:
        """The arrays of the program that a variant works on: all of them, or the outputs for the reset."""
        outputs = tuple(b.name for b in buffers(self.op))
        return outputs if name == "reset" else tuple(self.buffers)

    def code(self, name: Variant) -> MachineCode:
        """A variant as machine code."""
        body = self.variant(name)
        assert body is not None
        label = self.name if name == "body" else f"{self.name}.{name}"
        params = tuple(self.buffers[b].param for b in self.names(name))
        group = "" if name == "reset" else self.group
        return MachineCode(
            label, params, body, self.architecture, self.features, self.source, self.lanes, group, self.around
        )

    @cached_property
    def text(self) -> str:
        """Everything that tells this intrinsic from others."""
        threads = f" of {self.lanes} lanes" if self.lanes else ""
        threads += f" in groups {self.group}" if self.group else ""
        threads += f" between {' and '.join(self.around)}" if self.around else ""
        lines = [f"intrinsic {self.name} {self.architecture} {' '.join(self.features)}{threads}", self.program.text]
        for buffer in self.buffers.values():
            strides = ", ".join(map(str, buffer.strides))
            factor, alignment = buffer.offset_factor, buffer.data_alignment
            turned = " swizzled" * buffer.swizzled + " in panels" * buffer.panels
            held = f" in {buffer.scope}: {buffer.fragment!r}" if buffer.fragment else turned
            lines.append(f"{buffer.buffer} strides [{strides}] offset {factor} alignment {alignment}{held}")
        for name, stmt in (("body", self.body), ("reset", self.reset), ("update", self.update)):
            lines += [] if stmt is None else [f"{name}:", stmt_text(stmt)]
        return "\n".join([*lines, self.source])

    @cached_property
    def key(self) -> str:
        """A stable hash of the declaration."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"TensorIntrin({self.name}, {self.key})"


def is_plain(stmt: Stmt) -> bool:
    """Whether statements are loop IR that every target runs: no vectors, pointers or calls by symbol."""
    return not any(isinstance(node, MachineExpr) for expr in stmt_exprs(stmt) for node in walk(expr))


def check_declaration(intrin: TensorIntrin) -> None:
    """Raise DefinitionError unless the computation fills its arrays and the statements keep to them."""
    reduction = intrin.op.reduction
    held = [tile.name for tile in intrin.buffers.values() if tile.fragment and tile.fragment.lanes != intrin.lanes]
    if held:
        why = f"{held[0]} of {intrin.name} is held by other lanes than the {intrin.lanes} that run it"
        raise DefinitionError(why, intrin.location)
    if intrin.group and not all(f"{intrin.group}_{word}(" in intrin.source for word in ("commit", "wait")):
        named = f"{intrin.group}_commit() and {intrin.group}_wait<n>()"
        raise DefinitionError(f"the source of {intrin.name} has to define {named}, its group", intrin.location)
    if reduction is not None and reduction.where is not None:
        raise DefinitionError(
            f"{intrin.name} reduces under a condition; an intrinsic covers its whole tile", intrin.location
        )
    for buffer in (b for op in intrin.program.ops if op is not intrin.op for b in buffers(op)):
        _check_reads(intrin, buffer)
    variants: tuple[Variant, ...] = ("body", "reset", "update")
    for variant in variants:
        stmt = intrin.variant(variant)
        if stmt is not None:
            _check_statement(intrin, variant, stmt)
            _check_inside(intrin, variant, stmt, {})


def _check_reads(intrin: TensorIntrin, buffer: Buffer) -> None:
    """Every read is linear, and together they run from the first to the last element of every dimension."""
    extents = {a.name: a.extent for a in (*intrin.op.axes, *intrin.op.reduce_axes)}
    for d, size in enumerate(buffer.shape):
        lows, highs = [], []
        for load in (n for n in loads(intrin.op) if n.buffer == buffer):
            found = linear(load.index[d], extents.keys())
            if found is None or not isinstance(found[0], Const):
                text = f"{intrin.name} reads {load}: an intrinsic's indices are sums of multiples of its axes"
                raise DefinitionError(text, intrin.location)
            low, high = _reach(found[1], extents)
            lows.append(int(found[0].value) + low)
            highs.append(int(found[0].value) + high)
        wanted = int(size.value) if isinstance(size, Const) else 0
        if not lows or min(lows) != 0 or max(highs) != wanted - 1:
            reach = f"{min(lows)} to {max(highs)}" if lows else "nothing"
            raise DefinitionError(
                f"{intrin.name} declares {buffer} and reads {reach} of dimension {d}; declare what is read",
                intrin.location,
            )


def _reach(factors: Affine, extents: Mapping[str, Expr]) -> tuple[int, int]:
    ends = [(0, factor * (int(e.value) - 1)) for n, factor in factors.items() if isinstance(e := extents[n], Const)]
    return sum(min(pair) for pair in ends), sum(max(pair) for pair in ends)


def _check_statement(intrin: TensorIntrin, variant: Variant, stmt: Stmt) -> None:
    """A variant uses its own arrays, writes outputs only, and indexes them without strides."""
    outputs = {intrin.buffers[b.name].name for b in buffers(intrin.op)}
    own = {tile.name for tile in intrin.buffers.values()}
    scratch = {s.buffer.name for s in statements(stmt) if isinstance(s, Allocate)}
    strides = {s.name for tile in intrin.buffers.values() for s in tile.strides if isinstance(s, Var)}
    for buffer, index, writes in _accesses(stmt):
        if buffer.name in scratch:
            continue
        if buffer.name not in own:
            raise DefinitionError(f"the {variant} of {intrin.name} uses {buffer}, none of its arrays", intrin.location)
        if buffer.name not in outputs and (writes or variant == "reset"):
            what = "writes the input" if writes else "reads the input"
            raise DefinitionError(f"the {variant} of {intrin.name} {what} {buffer.name}", intrin.location)
        if any(variables(i) & strides for i in index):
            text = f"the {variant} of {intrin.name} has a stride in an index of {buffer.name}"
            raise DefinitionError(f"{text}; write one index per dimension", intrin.location)


def _accesses(stmt: Stmt) -> Iterator[Access]:
    for s in statements(stmt):
        if isinstance(s, Store):
            yield s.buffer, s.index, True
    for expr in stmt_exprs(stmt):
        yield from _reads(expr)


def _reads(expr: Expr) -> Iterator[Access]:
    for node in walk(expr):
        if isinstance(node, Load | VectorLoad):
            yield node.buffer, node.index, False
        elif isinstance(node, Pointer):
            yield node.buffer, node.index, "w" in node.access


def _check_inside(intrin: TensorIntrin, variant: Variant, stmt: Stmt, last: Mapping[str, Expr]) -> None:
    """No access leaves its array, as far as loops and indices show it; what a condition guards is not judged."""
    match stmt:
        case If():
            return
        case For(lower=Const(value=0), upper=Const(value=count)) if count > 0:
            last = {**last, stmt.var.name: stmt.upper}
        case For():
            return
        case Store():
            accesses = [(stmt.buffer, stmt.index, True), *(a for e in (*stmt.index, stmt.value) for a in _reads(e))]
            for buffer, index, _ in accesses:
                _check_element(intrin, variant, buffer, index, last)
    for child in children(stmt):
        _check_inside(intrin, variant, child, last)


def _check_element(
    intrin: TensorIntrin, variant: Variant, buffer: Buffer, index: tuple[Expr, ...], last: Mapping[str, Expr]
) -> None:
    for d, (part, size) in enumerate(zip(index, buffer.shape, strict=True)):
        found = linear(part, last.keys())
        if found is None or not isinstance(found[0], Const) or not isinstance(size, Const):
            continue
        low, high = (int(found[0].value) + end for end in _reach(found[1], last))
        if low < 0 or high >= size.value:
            raise DefinitionError(
                f"the {variant} of {intrin.name} uses {low} to {high} of dimension {d} of {buffer}", intrin.location
            )
