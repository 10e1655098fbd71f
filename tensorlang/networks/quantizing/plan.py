"""Which arrays of a network become integers, and who reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Const, Expr, Load, Select, walk
from tensorlang.networks.groups import parts_of
from tensorlang.networks.network import Array, Network
from tensorlang.networks.quantizing.products import Product, product_of
from tensorlang.te.operation import ComputeOp, Operation, PlaceholderOp, Reduce, loads
from tensorlang.te.program import Program
from tensorlang.te.reducer import builtin

_FEW_TERMS = 32
"""Terms of a sum of an input that is worth rounding it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`products` of integers, by their stages. `held`: arrays of integers, each with the one whose levels it has.

    `moves`: stages that choose among integers of the same levels. `floats`: stages that read floats all the same.
    """

    products: Mapping[str, Product]
    held: Mapping[str, str]
    moves: frozenset[str]
    floats: frozenset[str]
    home: Mapping[str, int]


def plan_of(network: Network, program: Program, weights: Mapping[str, Array], keep: Iterable[str]) -> Plan:
    """What of a folded program becomes integers, where the kernels of nodes that are in `keep` stay as they are.

    Products of matrices by known weights read integers, but for short ones of inputs. So do kernels of products and of
    sums over each channel what they pass on to each other. What only moves elements to integers, or takes the largest,
    moves integers. Sums of groups of channels have no form in integers that is fast, and read floats.
    """
    return _Planner(network, program, weights, frozenset(keep)).plan()


@dataclass(slots=True)
class _Planner:
    network: Network
    program: Program
    weights: Mapping[str, Array]
    keep: frozenset[str]
    home: dict[str, int] = field(default_factory=dict)
    floats: set[str] = field(default_factory=set)
    held: dict[str, str] = field(default_factory=dict)
    moves: set[str] = field(default_factory=set)

    def plan(self) -> Plan:
        parts = parts_of(self.program)
        for number, part in enumerate(parts):
            self.home |= {op.name: number for op in part.ops}
            if any(self.network.origin(op.name).node in self.keep for op in part.ops):
                self.floats |= {op.name for op in part.ops}
        found = (product_of(op, self.weights) for op in self.program.ops if op.name not in self.floats)
        sums = [product for product in found if product is not None]
        self.floats |= {p.op.name for p in sums if not p.is_matrix and not p.by_channels}
        products = {p.op.name: p for p in sums if p.is_matrix and self._is_holdable(p.data) and not self._is_begin(p)}
        summing = {self.home[p.op.name] for p in sums if p.op.name not in self.floats}
        self._hold(product.data.buffer.name for product in products.values())
        for number in sorted(summing):
            self._hold(name for name in parts[number].outputs if self._is_between(name, summing))
        return Plan(products, self.held, frozenset(self.moves), frozenset(self.floats), self.home)

    def _is_holdable(self, load: Load) -> bool:
        """Whether an array is an input, or the only one that a stage makes element by element."""
        op = self.program[self.program.producer[load.buffer.name]]
        return isinstance(op, PlaceholderOp) or (isinstance(op, ComputeOp) and op.num_outputs == 1)

    def _is_begin(self, product: Product) -> bool:
        """Whether a sum has so few terms of an input that to round these takes longer than is won."""
        return isinstance(self.program[product.data.buffer.name], PlaceholderOp) and product.terms < _FEW_TERMS

    def _is_between(self, name: str, summing: set[int]) -> bool:
        """Whether an array passes between kernels with products, and nowhere else."""
        op = self.program[self.program.producer[name]]
        readers = self.program.consumers[op.name]
        inner = isinstance(op, ComputeOp) and op.dtypes == ("float32",) and op.name not in self.floats
        return inner and not self._is_needed(name) and all(self.home[reader] in summing for reader in readers)

    def _is_needed(self, name: str) -> bool:
        """Whether somebody reads an array as floats."""
        readers = self.program.consumers[name]
        others = any(r in self.floats or not isinstance(self.program[r], ComputeOp) for r in readers)
        return others or name in self.program.outputs

    def _hold(self, names: Iterable[str]) -> None:
        """Hold arrays as integers, and those that are moved into them."""
        waiting = [name for name in names if name not in self.held]
        self.held |= {name: name for name in waiting}
        while waiting:
            name = waiting.pop()
            op = self.program[name]
            moving = is_move(op, self.weights) and all(map(self._is_holdable, loads(op)))
            if op.name in self.floats or self._is_needed(name) or not moving:
                continue
            self.moves.add(name)
            for source in dict.fromkeys(load.buffer.name for load in loads(op)):
                if source not in self.held:
                    self.held[source] = source
                    waiting.append(source)
                self._join(source, name)

    def _join(self, one: str, other: str) -> None:
        old, new = self.held[one], self.held[other]
        self.held = {name: new if first == old else first for name, first in self.held.items()}


def is_move(op: Operation, weights: Mapping[str, Array]) -> bool:
    """Whether each element of a stage is one of those that it reads, the largest of some, or a number."""
    if not isinstance(op, ComputeOp) or op.where or len(op.body) != 1 or op.dtype != "float32":
        return False
    match op.body[0]:
        case Reduce(sources=(source,), init=()) as total if total.reducer == builtin("max", "float32"):
            chosen = _is_chosen(source)
        case body:
            chosen = _is_chosen(body)
    return chosen and bool(loads(op)) and not any(load.buffer.name in weights for load in loads(op))


def _is_chosen(expr: Expr) -> bool:
    match expr:
        case Load(dtype="float32") | Const(dtype="float32"):
            return True
        case Select(cond=cond, then=then, orelse=orelse):
            return not any(isinstance(e, Load) for e in walk(cond)) and _is_chosen(then) and _is_chosen(orelse)
    return False
