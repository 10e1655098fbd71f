"""Sums of products: einsum, by a text of letters, and tensordot, by axes."""

from __future__ import annotations

import string
from collections.abc import Sequence
from functools import reduce

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Const, Expr, same
from tensorlang.te.axis import Axis
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import normalized
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed, rounded_once


@checked
def einsum(subscripts: str, *operands: Tensor, name: str = "einsum") -> Tensor:
    """Return the sum of products that `subscripts` describes, as NumPy's einsum: `"ij,jk->ik"` is a matrix product.

    Letters that are not in the result are summed over; without an arrow the result has the letters that occur once, in
    alphabetical order. An ellipsis stands for the axes that no letter names, which are broadcast. Half precision is
    added up in float32, bools by or. DefinitionError for anything but letters, and extents that do not fit.

        >>> from tensorlang import te, topi
        >>> topi.einsum("bij,bjk->bik", te.placeholder((2, 3, 4)), te.placeholder((2, 4, 5))).shape
        (2, 3, 5)
    """
    inputs, made = _letters(subscripts, [x.ndim for x in operands])
    extents: dict[str, Expr] = {}
    fits = len(inputs) == len(operands) and all(len(w) == x.ndim for w, x in zip(inputs, operands, strict=False))
    for word, x in zip(inputs, operands, strict=False) if fits else ():
        for letter, extent in zip(word, x.shape, strict=True):
            known = extents.setdefault(letter, extent)
            if _is_one(known):
                extents[letter] = known = extent
            fits = fits and (same(known, extent) or _is_one(extent))
    if not fits or not operands or len(set(made)) < len(made) or not set(made) <= set(extents):
        raise DefinitionError(f"einsum: {subscripts!r} does not fit {list(operands)}")
    axes = {c: te.reduce_axis((0, n), f"k_{c}") for c, n in extents.items() if c not in made}

    def element(i: Sequence[Expr], dtype: str) -> Expr:
        at: dict[str, Expr | Axis] = {**dict(zip(made, i, strict=True)), **axes}

        def read(word: str, x: Tensor) -> Expr:
            index = [0 if _is_one(n) else at[c] for c, n in zip(word, x.shape, strict=True)]
            return te.cast(x(*index), dtype)

        factors = (read(word, x) for word, x in zip(inputs, operands, strict=True))
        if dtype == "bool":
            both = reduce(lambda a, b: a & b, factors)
            return te.any(both, axis=list(axes.values())) if axes else both
        product = reduce(te.multiply, factors)
        return te.sum(product, axis=list(axes.values())) if axes else product

    return rounded_once(
        name,
        reduce(dtypes.promote, (x.dtype for x in operands)),
        lambda name, dtype: computed([extents[c] for c in made], lambda *i: element(i, dtype), name),
    )


@checked
def tensordot(
    a: Tensor, b: Tensor, axes: int | Sequence[int] | Sequence[Sequence[int]] = 2, name: str = "tensordot"
) -> Tensor:
    """Return the sums of products over the last `axes` of `a` and the first of `b`, or over those that two lists name.

    Two numbers are an axis of each. DefinitionError for axes that are not there, are named twice, or do not fit.

        >>> from tensorlang import te, topi
        >>> topi.tensordot(te.placeholder((2, 3, 4)), te.placeholder((4, 3, 5)), ((1, 2), (1, 0))).shape
        (2, 5)
    """
    pair: list[list[int]] = [[], []]
    if isinstance(axes, int):
        there = 0 <= axes <= min(a.ndim, b.ndim)
        pair = [list(range(a.ndim - axes, a.ndim)), list(range(axes))] if there else [[0], []]
    elif len(axes) == 2:
        pair = [[one] if isinstance(one, int) else list(one) for one in axes]
    left, right = ([normalized(name, x, axis) for axis in own] for x, own in zip((a, b), pair, strict=True))
    if len(left) != len(right) or len(set(left)) < len(left) or len(set(right)) < len(right) or a.ndim + b.ndim > 26:
        raise DefinitionError(f"{name}: axes {axes} are not as many of {a} as of {b}, each once")
    letters = string.ascii_lowercase
    first, second = list(letters[: a.ndim]), list(letters[a.ndim : a.ndim + b.ndim])
    for one, other in zip(left, right, strict=True):
        second[other] = first[one]
    kept = [c for own, gone in ((first, left), (second, right)) for d, c in enumerate(own) if d not in gone]
    return einsum(f"{''.join(first)},{''.join(second)}->{''.join(kept)}", a, b, name=name)


def _letters(subscripts: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The letters of the inputs and of the result; an ellipsis is letters that are free."""
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    inputs = left.split(",")
    if any(word.count("...") for word in inputs):
        known = zip(inputs, ranks, strict=False)
        more = [rank - len(word.replace("...", "")) if "..." in word else 0 for word, rank in known]
        free = [c for c in string.ascii_letters if c not in subscripts][: max(0, *more)]
        named = ("".join(free[len(free) - max(n, 0) :]) for n in more)
        inputs = [word.replace("...", letters, 1) for word, letters in zip(inputs, named, strict=False)]
        once = "".join(sorted(c for c in set(left) if c.isalpha() and left.count(c) == 1))
        arrow, right = "->", (right if arrow else f"...{once}").replace("...", "".join(free), 1)
    every = "".join(inputs)
    if not all(c.isascii() and c.isalpha() for c in every + right):
        raise DefinitionError(f"einsum: {subscripts!r} is no list of letters, as in 'ij,jk->ik'")
    return inputs, right if arrow else "".join(sorted(c for c in set(every) if every.count(c) == 1))


def _is_one(extent: Expr) -> bool:
    return isinstance(extent, Const) and extent.value == 1
