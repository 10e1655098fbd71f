"""Random numbers against Threefry in Python's whole numbers, and distributions against their moments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from tensorlang import te, topi
from tensorlang.errors import DefinitionError
from tests.device_targets import on_cuda, on_opencl
from tests.topi.calls import Call, check, ran_all
from tests.topi.programs import Array

MASK = (1 << 64) - 1
TURNS = ((14, 16), (52, 57), (23, 40), (5, 37), (25, 33), (46, 12), (58, 22), (32, 32))


def hashed(key: list[int], counter: list[int]) -> list[int]:
    """TVM's Threefry: words are turned, mixed and swapped, and the key is added before every fourth round."""
    keys = [*key, key[0] ^ key[1] ^ key[2] ^ key[3] ^ 0x1BD11BDAA9FC1A22]
    x = list(counter)
    for number in range(20):
        if number % 4 == 0:
            step = number // 4
            x = [(v + keys[(step + j) % 5] + (step if j == 3 else 0)) & MASK for j, v in enumerate(x)]
        for pair in (0, 1):
            a, b, turn = x[2 * pair], x[2 * pair + 1], TURNS[number % 8][pair]
            a = (a + b) & MASK
            x[2 * pair], x[2 * pair + 1] = a, ((b << turn | b >> 64 - turn) & MASK) ^ a
        x = [x[0], x[3], x[2], x[1]]
    return x


def moved(gen: list[int], bit: bool) -> list[int]:
    """A generator with one more bit in its path."""
    high, low = gen[8], gen[9]
    path = [gen[4] | high, gen[5] | low] if bit else gen[4:6]
    step = [0, 1 << 63] if high == 1 else [0, low >> 1] if high == 0 else [high >> 1, 0]
    return [*gen[:4], *path, *gen[6:8], *step]


def generated(array: Array, count: int) -> list[Array]:
    gen = [int(v) for v in array]
    if gen[7] >= MASK - count:
        if gen[8] == gen[9] == 0:
            gen = [*hashed(gen[:4], [MASK] * 4), 0, 0, 0, 0, 1 << 63, 0]
        else:
            gen = moved(gen, True)
            gen[6:8] = [0, 0]
    bits = [v for i in range(count // 4) for v in hashed(gen[:4], [(c + i) & MASK for c in gen[4:8]])]
    return [np.array([*gen[:6], 0, gen[7] + count, *gen[8:]], np.uint64), np.array(bits, np.uint64)]


def halves(array: Array) -> list[Array]:
    gen = [int(v) for v in array]
    if gen[8] == gen[9] == 0:
        key = hashed(gen[:4], gen[4:8])
        sides = [[*key, path, 0, 0, 0, 1 << 62, 0] for path in (0, 1 << 63)]
    else:
        sides = [moved(gen, bit) for bit in (False, True)]
    return [np.array(side, np.uint64) for side in sides]


def key(**words: int) -> Array:
    made: Array = topi.random.threefry_key(11)
    for name, value in words.items():
        made[int(name[1:])] = value
    return made


def alone(array: Array, _: int) -> list[Array]:
    return [array]


KEYS = {
    "a new one": key(),
    "on its way": key(w4=5 << 60, w7=1000, w8=1 << 40),
    "at the end of a word": key(w8=1),
    "in the second word": key(w8=0, w9=1 << 9),
    "a full path": key(w5=77, w8=0),
    "no room": key(w7=MASK - 9),
    "no room and a full path": key(w7=MASK - 9, w8=0),
}
CALLS: dict[str, Call] = {
    **{
        f"bits of {word}": Call(
            lambda g: topi.random.threefry_generate(g, (3, 4)),
            lambda g: [generated(g, 12)[0], generated(g, 12)[1].reshape(3, 4)],
            partial(alone, array),
        )
        for word, array in KEYS.items()
    },
    **{f"halves of {word}": Call(topi.random.threefry_split, halves, partial(alone, k)) for word, k in KEYS.items()},
    "uniform": Call(
        lambda g, low: topi.random.uniform(g, low, 3.0, (8,)),
        lambda g, low: [generated(g, 8)[0], low + (3 - low) * (generated(g, 8)[1] >> np.uint64(41)) / 2.0**23],
        lambda n: [key(), np.array(-1, np.float32)],
    ),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    check(CALLS[name], "llvm", 5)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", ["interpreter", on_opencl, on_cuda])
@pytest.mark.parametrize("name", CALLS)
def test_calls_on_devices(name: str, target: str) -> None:
    check(CALLS[name], target, 5)


def test_normal_numbers_have_their_moments() -> None:
    _, made = ran_all(Call(lambda g: topi.random.normal(g, 2.0, 3.0, (50, 41)), list), "llvm", [key()])
    z = (made.astype(np.float64) - 2) / 3
    assert made.shape == (50, 41) and made.dtype == np.float32
    assert (
        abs(z.mean()) < 0.1
        and abs(z.std() - 1) < 0.05
        and abs((z**3).mean()) < 0.25
        and abs(np.abs(z) > 2).mean() < 0.08
    )


G = te.placeholder((10,), "uint64", name="G")
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no fours": (lambda: topi.random.threefry_generate(G, (3,)), "makes elements by fours"),
    "too many": (lambda: topi.random.threefry_generate(G, (1 << 62, 4)), "fewer than 2"),
    "no generator": (lambda: topi.random.threefry_split(te.placeholder((4,), "uint64")), r"uint64\[10\]"),
    "integers": (lambda: topi.random.uniform(G, 0, 1, (4,), "int32"), "makes floats"),
    "a bound of another dtype": (lambda: topi.random.uniform(G, te.placeholder((), "float64"), 1, (4,)), "one float32"),
    "a seed below 0": (lambda: topi.random.threefry_key(-1), "from 0 to 2"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_is_refused(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(DefinitionError, match=message):
        call()
