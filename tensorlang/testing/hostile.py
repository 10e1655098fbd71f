"""What can be wrong with the arguments of a call: each row damages good ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field
from random import Random
from typing import Any

import numpy as np

from tensorlang.dataclass import dataclass
from tensorlang.testing.guarded import Array, GuardedMemory

SIZES: tuple[Any, ...] = (
    *(-1, -(2**31), -(2**63), 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**33 + 1, 2**40, 2**61, 2**62, 2**62 + 1),
    *(
        2**63 - 2,
        2**63 - 1,
        2**63,
        2**64 - 1,
        2**64,
        2**64 + 3,
        10**30,
        -(10**30),
        True,
        False,
        2.0,
        math.nan,
        math.inf,
    ),
    *("3", None, 1j, np.float32(3), np.uint64(2**63), np.int64(2**62), np.int64(-5), np.bool_(True), np.array(3)),
    *(np.array([3]), [3], b"3", np.datetime64(3, "s")),
)
"""Values that are given for a size."""
_EXTENTS = (0, 1, 2, 3, 4, 9, 16, 64)


@dataclass(slots=True)
class Given:
    """The arguments of a call: arrays over guarded memory, and what is passed for them where that differs.

    `order` names the arrays as they are passed. `is_wrong`: whatever runs with these arguments is a fault.
    """

    arrays: dict[str, Array]
    sizes: dict[str, Any]
    order: list[str]
    dtype: str
    memory: dict[str, GuardedMemory]
    passed: dict[str, Any] = field(default_factory=dict)
    named: dict[str, Any] = field(default_factory=dict)
    extra: list[Any] = field(default_factory=list)
    is_wrong: bool = False

    def args(self) -> list[Any]:
        """What the kernel is called with."""
        arrays = [self.passed.get(name, self.arrays[name]) for name in self.order]
        return [*self.sizes.values(), *arrays, *self.extra]

    def meaning(self, before: dict[str, Array]) -> tuple[int, int]:
        """The sizes that arguments which were accepted have."""
        if self.sizes:
            return int(self.sizes.get("n", 0)), int(self.sizes.get("m", 0))
        rows, columns = before["B"].shape if "B" in before else (0, 0)
        return rows, columns

    def pass_instead(self, name: str, value: Any) -> None:
        """Pass something that no kernel takes."""
        self.passed[name] = value
        self.is_wrong = True

    def reshape(self, name: str, shape: tuple[int, ...], rng: Random, dtype: Any = None, shift: int = 0) -> None:
        """Put another array in the place of one, over the same memory."""
        try:
            made = self.memory[name].array(shape, dtype or self.dtype, rng.random() < 0.5, shift)
        except ValueError:
            return  # larger than the memory
        made[...] = 1
        self.arrays[name] = made


@dataclass(frozen=True, slots=True)
class Damage:
    """A way to make arguments wrong; `of_sizes`: it needs explicit sizes."""

    apply: Callable[[Given, Random], None]
    of_sizes: bool = False


def _some(given: Given, rng: Random) -> str:
    return rng.choice(given.order)


def _nothing(given: Given, rng: Random) -> None:
    """Good arguments."""


def _other_extent(given: Given, rng: Random) -> None:
    name = _some(given, rng)
    shape = list(given.arrays[name].shape)
    at = rng.randrange(len(shape))
    shape[at] = rng.choice((shape[at] + 1, max(0, shape[at] - 1), *_EXTENTS))
    given.reshape(name, tuple(shape), rng)


def _other_rank(given: Given, rng: Random) -> None:
    name = _some(given, rng)
    shape = given.arrays[name].shape
    given.reshape(name, rng.choice(((*shape, 1), (1, *shape), shape[1:], (), (math.prod(shape),))), rng)


def _empty_and_long(given: Given, rng: Random) -> None:
    """No element, and another extent of any length."""
    name = _some(given, rng)
    shape = [rng.choice((0, 2**31, 2**32, 2**40, 2**52, 3)) for _ in given.arrays[name].shape]
    shape[rng.randrange(len(shape))] = 0
    given.reshape(name, tuple(shape), rng)


def _empty_alike(given: Given, rng: Random) -> None:
    """B and D of [2**k, 0]: their sizes are true, and enormous. Few rows where another output has elements."""
    long = (2**31, 2**32, 2**40, 2**55)
    rows = rng.choice((2**16,) if given.arrays["C"].size else long)
    shape = (rows, 0) if rng.random() < 0.5 else (0, rng.choice(long))
    for name in ("B", "D"):
        if name in given.arrays:
            given.reshape(name, shape, rng)


def _other_dtype(given: Given, rng: Random) -> None:
    name = _some(given, rng)
    wrong = [d for d in ("float32", "int32", "uint8", ">f4", ">i4", "complex64", "bool", ">i8") if d != given.dtype]
    given.reshape(name, given.arrays[name].shape, rng, rng.choice(wrong))
    given.is_wrong = given.arrays[name].dtype != np.dtype(given.dtype)


def _misaligned(given: Given, rng: Random) -> None:
    name = _some(given, rng)
    given.reshape(name, given.arrays[name].shape, rng, shift=1)


def _other_strides(given: Given, rng: Random) -> None:
    name = _some(given, rng)
    array = given.arrays[name]
    same = np.lib.stride_tricks.as_strided(array[:1], array.shape, (0,) * array.ndim) if array.size else array
    turned = rng.choice((array[::-1], array.T, np.asfortranarray(array), same))
    given.passed[name] = turned
    given.is_wrong = not turned.flags.c_contiguous or turned.shape != array.shape
    if turned.flags.owndata or not np.shares_memory(turned, array):
        given.arrays[name] = turned


def _read_only(given: Given, rng: Random) -> None:
    name = rng.choice([n for n in given.order if n in "CD"])
    view = given.arrays[name].view()
    view.flags.writeable = False
    given.pass_instead(name, view)


def _same_memory(given: Given, rng: Random) -> None:
    """An output that shares memory with another array."""
    one, other = ("C", "A") if rng.random() < 0.5 or "B" not in given.order else ("D", "B")
    array = given.arrays[other]
    if array.size:
        given.pass_instead(one, array)


def _shifted_memory(given: Given, rng: Random) -> None:
    """A and C in one piece of memory, an element apart."""
    array = given.arrays["A"]
    room = given.memory["A"].bytes
    if array.size > 1 and array.nbytes + array.itemsize <= room.size:
        given.reshape("A", (array.size + 1,), rng)
        whole = given.arrays["A"]
        given.arrays["A"] = whole[:-1].reshape(array.shape)
        given.pass_instead("C", whole[1:].reshape(array.shape))


def _liar(given: Given, rng: Random) -> None:
    """A subclass that says that it is larger."""
    name = _some(given, rng)
    given.passed[name] = given.arrays[name].view(_Liar)


_ELSEWHERE = {"data": (16, False), "shape": (2**20,), "typestr": "<f4", "version": 3}
_Liar = type(
    "_Liar",
    (np.ndarray,),
    {"shape": property(lambda _: (2**20,)), "__array_interface__": property(lambda _: _ELSEWHERE)},
)


def _masked(given: Given, rng: Random) -> None:
    name = _some(given, rng)
    given.pass_instead(name, np.ma.MaskedArray(given.arrays[name]))


def _no_array(given: Given, rng: Random) -> None:
    name = _some(given, rng)
    array = given.arrays[name]
    given.pass_instead(
        name,
        rng.choice((None, 3, "A", [1.0], array.tolist(), array.astype(object), object(), {}, memoryview(b"x"), type)),
    )


class _Exporter:
    """What claims to be an array, by attributes that are nonsense, or raise."""

    def __init__(self, **parts: Any) -> None:
        self.parts = parts

    def __getattr__(self, name: str) -> Any:
        if name not in self.parts:
            raise AttributeError(name)
        value = self.parts[name]
        if isinstance(value, Exception):
            raise value
        return value


def _raises(*_: Any, **__: Any) -> Any:
    raise RuntimeError("no")


def _exporter(given: Given, rng: Random) -> None:
    interfaces: list[Any] = [
        {"shape": (-8,), "typestr": "<f4", "data": (16, False), "version": 3},
        {"shape": (8,), "typestr": "<f4", "data": (0, False), "version": 3},
        {"shape": (2**62,), "typestr": "<f4", "data": (16, False), "version": 3},
        {"shape": "x", "typestr": 5, "data": None, "version": 9},
        *({}, None, 3, ValueError("no"), KeyError("shape"), RuntimeError("no"), ZeroDivisionError()),
    ]
    exporters = [_Exporter(__array_interface__=interface) for interface in interfaces]
    exporters += [
        _Exporter(__dlpack__=lambda **_: 3, __dlpack_device__=lambda: (1, 0)),
        _Exporter(__dlpack__=lambda **_: object(), __dlpack_device__=lambda: (1, 0)),
        _Exporter(__dlpack__=_raises, __dlpack_device__=lambda: (1, 0)),
        _Exporter(__dlpack__=_raises, __dlpack_device__=_raises),
        _Exporter(__dlpack__=_raises, __dlpack_device__=lambda: "x"),
        _Exporter(__dlpack__=_raises, __dlpack_device__=lambda: ()),
        _Exporter(__dlpack__=None, __dlpack_device__=7),
        _Exporter(__dlpack__=lambda **_: 3, __dlpack_device__=lambda: (2, 0)),
    ]
    given.pass_instead(_some(given, rng), rng.choice(exporters))


def _number(given: Given, rng: Random) -> None:
    """One argument too few or too many, or one by name."""
    name = _some(given, rng)
    match rng.randrange(3):
        case 0:
            given.order.remove(name)
            if 2 * len(given.order) == len(given.arrays):  # the inputs alone: a call that makes its outputs
                given.order.clear()
        case 1:
            given.extra.append(given.arrays[name])
        case _:
            given.order.remove(name)
            given.named[rng.choice((name, "status", "x", "\ud800"))] = given.arrays[name]
    given.is_wrong = True


def _hostile_size(given: Given, rng: Random) -> None:
    name = rng.choice(list(given.sizes))
    given.sizes[name] = rng.choice((*SIZES, rng.randrange(-(2**70), 2**70), rng.randrange(2**63)))


def _wrapping_size(given: Given, rng: Random) -> None:
    """A size whose extents are the right ones in 32 or in 64 bits."""
    name = rng.choice(list(given.sizes))
    given.sizes[name] += rng.choice((2**31, 2**32, 2**33, 2**62, 2**63, 2**64, 3 * 2**62)) * rng.choice((1, -1))


class _Index:
    """A size that is another one each time it is asked, or none."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.asked = 0

    def __index__(self) -> int:
        self.asked += 1
        if isinstance(self.value, Exception):
            raise self.value
        return int(self.value) * self.asked

    __int__ = __index__


def _odd_index(given: Given, rng: Random) -> None:
    name = rng.choice(list(given.sizes))
    given.sizes[name] = _Index(rng.choice((2**40, -1, ValueError("no"), RuntimeError("no"), KeyError("n"))))


DAMAGES: dict[str, Damage] = {
    "nothing": Damage(_nothing),
    "another extent": Damage(_other_extent),
    "another rank": Damage(_other_rank),
    "no element, and any length": Damage(_empty_and_long),
    "true sizes without an element": Damage(_empty_alike),
    "another dtype": Damage(_other_dtype),
    "misaligned": Damage(_misaligned),
    "other strides": Damage(_other_strides),
    "a read-only output": Damage(_read_only),
    "one array twice": Damage(_same_memory),
    "overlapping arrays": Damage(_shifted_memory),
    "a subclass that lies": Damage(_liar),
    "a masked array": Damage(_masked),
    "no array": Damage(_no_array),
    "an exporter of nonsense": Damage(_exporter),
    "another number of arguments": Damage(_number),
    "a hostile size": Damage(_hostile_size, of_sizes=True),
    "a size that wraps around": Damage(_wrapping_size, of_sizes=True),
    "an odd index": Damage(_odd_index, of_sizes=True),
}
"""What is wrong with the arguments -> how."""
