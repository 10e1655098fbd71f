"""einsum: sums of products that a text of letters describes."""

from __future__ import annotations

from functools import reduce

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Const, Expr, same
from tensorlang.te.axis import Axis
from tensorlang.te.operation import Tensor
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed


@checked
def einsum(subscripts: str, *operands: Tensor, name: str = "einsum") -> Tensor:
    """Return the sum of products that `subscripts` describes, as NumPy's einsum: `"ij,jk->ik"` is a matrix product.

    Letters that are not in the result are summed over; without an arrow the result has the letters that occur once, in
    alphabetical order. Half precision is added up in float32, bools by or. DefinitionError for anything but letters,
    and extents that do not fit; there is no ellipsis.

        >>> from tensorlang import te, topi
        >>> topi.einsum("bij,bjk->bik", te.placeholder((2, 3, 4)), te.placeholder((2, 4, 5))).shape
        (2, 3, 5)
    """
    inputs, made = _letters(subscripts)
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
    narrow = reduce(dtypes.promote, (x.dtype for x in operands))
    wide = "float32" if narrow in ("float16", "bfloat16") else narrow

    def element(*i: Expr) -> Expr:
        at: dict[str, Expr | Axis] = {**dict(zip(made, i, strict=True)), **axes}

        def read(word: str, x: Tensor) -> Expr:
            index = [0 if _is_one(n) else at[c] for c, n in zip(word, x.shape, strict=True)]
            return te.cast(x(*index), wide)

        factors = (read(word, x) for word, x in zip(inputs, operands, strict=True))
        if wide == "bool":
            both = reduce(lambda a, b: a & b, factors)
            return te.any(both, axis=list(axes.values())) if axes else both
        product = reduce(te.multiply, factors)
        return te.sum(product, axis=list(axes.values())) if axes else product

    total = computed([extents[c] for c in made], element, name if wide == narrow else f"{name}_sum")
    return total if wide == narrow else computed(total.shape, lambda *i: te.cast(total(*i), narrow), name)


def _letters(subscripts: str) -> tuple[list[str], str]:
    """The letters of the inputs and of the result."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    inputs = left.split(",")
    every = "".join(inputs)
    if not all(c.isascii() and c.isalpha() for c in every + right):
        raise DefinitionError(f"einsum: {subscripts!r} is no list of letters, as in 'ij,jk->ik'")
    return inputs, right if arrow else "".join(sorted(c for c in set(every) if every.count(c) == 1))


def _is_one(extent: Expr) -> bool:
    return isinstance(extent, Const) and extent.value == 1
