"""Threefry of 4 words and 20 rounds (Salmon et al. 2011; no key behind the last one, as TVM has it), and generators.

A generator is ten words: a key of 4, a path of 2, a counter of 2 (of which the last counts), and the place of the next
bit of the path, 2. Splitting puts a bit into the path (Claessen and Pałka 2013); when that is full, the key is hashed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, binary
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import extents
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed

_cast: Any = te.cast  # of numbers and of expressions
_ROTATIONS = ((14, 16), (52, 57), (23, 40), (5, 37), (25, 33), (46, 12), (58, 22), (32, 32))
"""By how many bits the words of a round are turned, from the paper on Skein (Ferguson et al. 2010)."""
_PARITY = 0x1BD11BDAA9FC1A22
_ALL, _TOP = (1 << 64) - 1, 1 << 63
_WORDS = 10


@checked
def threefry_key(seed: int) -> npt.NDArray[np.uint64]:
    """Return the array of a generator, uint64[10], for a whole number of at most 64 bits; DefinitionError for others.

    >>> from tensorlang import topi
    >>> topi.random.threefry_key(7)[[3, 8]]
    array([                  7, 9223372036854775808], dtype=uint64)
    """
    if not 0 <= seed <= _ALL:
        raise DefinitionError(f"threefry_key takes a seed from 0 to 2**64 - 1, got {seed}")
    return np.array([0, 0, 0, seed, 0, 0, 0, 0, _TOP, 0], np.uint64)


@checked
def threefry_generate(gen: Tensor, out_shape: Sequence[int], name: str = "threefry_generate") -> tuple[Tensor, Tensor]:
    """Return the generator that goes on, uint64[10], and random bits, uint64 of a shape.

    The elements, whose number is a multiple of 4, are hashes of the counter: any order gives the same ones. They are
    those of TVM. A counter that is used up goes on with the next path, or a new key. DefinitionError for other numbers
    of elements, and for what is no generator.

        >>> from tensorlang import te, topi
        >>> [x.shape for x in topi.random.threefry_generate(te.placeholder((10,), "uint64"), (3, 4))]
        [(10,), (3, 4)]
    """
    shape, count = tuple(out_shape), math.prod(out_shape)
    if min(shape, default=0) < 0 or count % 4:
        raise DefinitionError(f"{name} makes elements by fours, got the shape {shape} of {count}")
    if count >= _TOP:
        raise DefinitionError(f"{name} makes fewer than 2**63 elements, got the shape {shape}: split the generator")
    own = _with_room(_generator(name, gen), count, name)
    bits = _hashed(own, 4, count // 4, f"{name}_bits")

    def element(*i: Expr) -> Expr:
        flat: Expr = te.const(0, "int64")
        for index, extent in zip(i, shape, strict=True):
            flat = flat * extent + index
        return bits(binary("floordiv", flat, 4), binary("floormod", flat, 4))

    def word(k: Expr) -> Expr:
        counted = te.select(binary("eq", k, 7), own(k) + te.const(count, "uint64"), own(k))
        return te.select(binary("eq", k, 6), te.const(0, "uint64"), counted)

    return computed((_WORDS,), word, f"{name}_next"), computed(shape, element, name)


@checked
def threefry_split(gen: Tensor, name: str = "threefry_split") -> tuple[Tensor, Tensor]:
    """Return two generators of numbers that are independent, uint64[10] each: those of TVM.

    DefinitionError for what is no generator.

        >>> from tensorlang import te, topi
        >>> [x.shape for x in topi.random.threefry_split(te.placeholder((10,), "uint64"))]
        [(10,), (10,)]
    """
    own = _generator(name, gen)
    full, fresh = _path_is_full(own), _hashed(own, 4, 1, f"{name}_key")

    def side(right: bool) -> Tensor:
        def word(k: Expr) -> Expr:
            key = te.if_then_else(k < 4, fresh(0, te.minimum(k, 3)), te.const(0, "uint64"))
            first = te.select(binary("eq", k, 4), te.const(_TOP if right else 0, "uint64"), key)
            anew = te.select(binary("eq", k, 8), te.const(_TOP >> 1, "uint64"), first)
            return te.if_then_else(full, anew, _one_step(own, k, right))

        return computed((_WORDS,), word, f"{name}_{'right' if right else 'left'}")

    return side(False), side(True)


def _generator(name: str, gen: Tensor) -> Tensor:
    if gen.dtype != "uint64" or gen.ndim != 1 or extents(name, gen) != (_WORDS,):
        raise DefinitionError(f"{name} takes a generator, uint64[10], as threefry_key makes it; got {gen}")
    return gen


def _path_is_full(gen: Tensor) -> Expr:
    none = te.const(0, "uint64")
    return te.all(binary("eq", gen(8), none), binary("eq", gen(9), none))


def _one_step(gen: Tensor, k: Expr, bit: bool) -> Expr:
    """A word of a generator with one more bit in its path."""
    none, one = te.const(0, "uint64"), te.const(1, "uint64")
    high, low = gen(8), gen(9)
    last, past = binary("eq", high, one), binary("eq", high, none)
    moved = [
        te.select(last, none, high >> one),
        te.select(last, te.const(_TOP, "uint64"), te.select(past, low >> one, none)),
    ]
    made = gen(k)
    if bit:
        made = te.select(binary("eq", k, 4), gen(4) | high, te.select(binary("eq", k, 5), gen(5) | low, made))
    return te.select(binary("eq", k, 8), moved[0], te.select(binary("eq", k, 9), moved[1], made))


def _with_room(gen: Tensor, count: int, name: str) -> Tensor:
    """The generator, or the next one where its counter has no room for so many."""
    ones = computed((_WORDS,), lambda k: te.select(k < 4, gen(k), te.const(_ALL, "uint64")), f"{name}_ones")
    fresh, full = _hashed(ones, 4, 1, f"{name}_key"), _path_is_full(gen)
    room = binary("lt", gen(7), te.const(_ALL - count, "uint64"))

    def word(k: Expr) -> Expr:
        none = te.const(0, "uint64")
        anew = te.if_then_else(k < 4, fresh(0, te.minimum(k, 3)), none)
        anew = te.select(binary("eq", k, 8), te.const(_TOP, "uint64"), anew)
        stepped = _one_step(gen, k, True)
        stepped = te.select(te.any(binary("eq", k, 6), binary("eq", k, 7)), none, stepped)
        return te.if_then_else(room, gen(k), te.if_then_else(full, anew, stepped))

    return computed((_WORDS,), word, f"{name}_state")


def _hashed(gen: Tensor, first: int, count: int, name: str) -> Tensor:
    """The hashes of so many counters that follow each other: uint64[count, 4].

    The key is in the first words of `gen`, the first counter in 4 words from `first` on; its words all count.
    """

    def turn(r: Expr, pair: Expr) -> Expr:
        made: Expr = te.const(0, "uint64")
        for number, (one, other) in enumerate(_ROTATIONS):
            bits = te.select(pair < 1, te.const(one, "uint64"), te.const(other, "uint64"))
            made = te.select(binary("eq", r, number), bits, made)
        return made

    def hashed(gen, turns):  # type: ignore[no-untyped-def]
        made = te.output_tensor((count, 4), "uint64")
        for i in range(count):
            key = te.allocate((5,), "uint64", "local")
            x = te.allocate((4,), "uint64", "local")
            for j in range(4):
                key[j] = gen[j]
                x[j] = gen[first + j] + _cast(i, "uint64")
            key[4] = gen[0] ^ gen[1] ^ gen[2] ^ gen[3] ^ te.const(_PARITY, "uint64")
            for s in range(5):
                for j in range(4):
                    x[j] = x[j] + key[(s + j) % 5]
                x[3] = x[3] + _cast(s, "uint64")
                for r in range(4):
                    left = turns[(s * 4 + r) % 8, 0]
                    right = turns[(s * 4 + r) % 8, 1]
                    x[0] = x[0] + x[1]
                    x[2] = x[2] + x[3]
                    two = ((x[1] << left) | (x[1] >> (64 - left))) ^ x[0]
                    x[1] = ((x[3] << right) | (x[3] >> (64 - right))) ^ x[2]
                    x[3] = two
            for j in range(4):
                made[i, j] = x[j]
        return made

    turns = computed((len(_ROTATIONS), 2), turn, f"{name}_turns")
    found = te.hybrid.script(name=name)(hashed)(gen, turns)
    assert isinstance(found, Tensor)
    return found
