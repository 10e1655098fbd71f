"""Einstein's sums, as products of matrices: two factors at a time, in the order in which they are given."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence

from tensorlang import te, topi
from tensorlang.ir.expr import Expr
from tensorlang.networks.network import Value
from tensorlang.networks.node import Node, Rule, shape_of
from tensorlang.networks.onnx.sums import product
from tensorlang.networks.places import reshaped
from tensorlang.networks.refusal import Unsupported
from tensorlang.te.operation import Tensor


def _einsum(node: Node) -> Value:
    factors = [node.tensor(k) for k in range(len(node.inputs))]
    terms, wanted = _terms(node.attrs["equation"], [len(shape_of(f)) for f in factors])
    made, letters = _diagonal(node, factors[0], terms[0], 0)
    for number in range(1, len(factors)):
        other, own = _diagonal(node, factors[number], terms[number], number)
        needed = set(wanted).union(*terms[number + 1 :])
        made, letters = _joined(node, (made, letters), (other, own), needed, number)
    return _arranged(made, letters, wanted, f"{node.stage}_out")


def _terms(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The letters of each factor and of the result, with letters in place of the dots."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise Unsupported(f"Einsum {equation} of {len(ranks)} inputs")
    free = [c for c in string.ascii_letters if c not in equation]
    most = max((n - len(t) + 3 for t, n in zip(terms, ranks, strict=True) if "..." in t), default=0)
    dots = "".join(free[:most])
    found = [t.replace("...", dots[most - (n - len(t) + 3) :]) for t, n in zip(terms, ranks, strict=True)]
    once = sorted(c for c in set("".join(terms)) - {"."} if "".join(terms).count(c) == 1)
    wanted = right.replace("...", dots) if arrow else dots + "".join(once)
    fits = all(len(t) == n for t, n in zip(found, ranks, strict=True)) and {*wanted} <= {*"".join(found)}
    if not fits or len({*wanted}) < len(wanted):
        raise Unsupported(f"Einsum {equation} of {', '.join(map(str, ranks))} dimensions")
    return found, wanted


def _diagonal(node: Node, data: Tensor, letters: str, number: int) -> tuple[Tensor, str]:
    """A factor without repeated letters: the elements with equal indices."""
    kept = "".join(dict.fromkeys(letters))
    if kept == letters:
        return data, letters
    extents = [shape_of(data)[letters.index(c)] for c in kept]
    made: Tensor = te.compute(
        tuple(extents), lambda *i: data(*(i[kept.index(c)] for c in letters)), name=f"{node.stage}_diagonal{number}"
    )
    return made, kept


def _joined(
    node: Node, left: tuple[Tensor, str], right: tuple[Tensor, str], needed: set[str], number: int
) -> tuple[Tensor, str]:
    """The sum of products of two factors over letters that nothing else needs, as products of matrices."""
    name = f"{node.stage}_{number}"
    a, b = (_summed(*f, needed | set(o[1]), f"{name}_{k}") for k, (f, o) in enumerate(((left, right), (right, left))))
    extents = _extents(a) | {c: n for c, n in _extents(b).items() if n != 1 or c not in a[1]}
    both = [c for c in a[1] if c in b[1]]
    batch, inner = [c for c in both if c in needed], [c for c in both if c not in needed]
    rows, columns = ([c for c in f[1] if c not in both] for f in (a, b))
    sides = []
    for (data, letters), order, shape, side in (
        (a, [*batch, *rows, *inner], (batch, rows, inner), "left"),
        (b, [*batch, *inner, *columns], (batch, inner, columns), "right"),
    ):
        laid = _arranged(data, letters, "".join(order), f"{name}_{side}")
        laid = topi.broadcast_to(laid, [extents[c] for c in order], f"{name}_{side}_wide")
        flat = [math.prod(extents[c] for c in part) for part in shape]
        sides.append(reshaped(laid, flat if batch else flat[1:], f"{name}_{side}_flat"))
    made = product(name, sides[0], sides[1])
    order = [*batch, *rows, *columns]
    return reshaped(made, [extents[c] for c in order], f"{name}_whole"), "".join(order)


def _extents(factor: tuple[Tensor, str]) -> dict[str, int]:
    return dict(zip(factor[1], shape_of(factor[0]), strict=True))


def _summed(data: Tensor, letters: str, needed: set[str], name: str) -> tuple[Tensor, str]:
    """A factor summed over the letters that nobody needs."""
    dropped = [d for d, c in enumerate(letters) if c not in needed]
    if not dropped:
        return data, letters
    return topi.sum(data, dropped, name=f"{name}_sum"), "".join(c for c in letters if c in needed)


def _arranged(data: Tensor, letters: str, wanted: str, name: str) -> Tensor:
    """A factor with its letters in an order; those that are not wanted are summed."""
    data, letters = _summed(data, letters, set(wanted), name)
    if letters == wanted:
        return data

    def element(*i: Expr) -> Expr:
        return data(*(i[wanted.index(c)] for c in letters))

    made: Tensor = te.compute(tuple(shape_of(data)[letters.index(c)] for c in wanted), element, name=name)
    return made


RULES: dict[str, Rule] = {"Einsum": _einsum}
