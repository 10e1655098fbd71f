"""Hostile calls of kernels: sizes, shapes, strides and objects that must be refused, or run as NumPy would.

`draw_call` draws one, `run_call` runs it on both roads (the checks in machine code and those in Python) over guarded
memory. Each drawn program has symbolic extents, sums, products and quotients of sizes, and scratch memory. `run_calls`
runs many in a process of their own, so that one that is killed is known by its number.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import field
from functools import cache
from random import Random
from typing import Any

import numpy as np

import tensorlang
from tensorlang import te
from tensorlang.dataclass import dataclass
from tensorlang.errors import ArgumentError, TensorlangError
from tensorlang.runtime import cpython
from tensorlang.runtime.executable import Executable
from tensorlang.testing.guarded import PAGES, Array, GuardedMemory
from tensorlang.testing.hostile import DAMAGES, Given

PROGRAMS = 40
"""Different programs that calls are drawn of."""
_EXTENTS = (
    *("n", "m", "2*n + 1", "n + m", "n*m", "(n + 1)//2", "n*m + 3", "3*n + 2*m", "n//4 + m", "4", "1", "n*2 + m*2"),
    *("(n + 3)//4*4", "n*n", "m + 5", "n*m*2 + n"),
)
_DTYPES = ("float32", "int32", "uint8", "int64", "float64", "int16")
_ROADS = ("fast", "slow")


class CallFault(AssertionError):
    """A call that did what no call may do; the text says how to do it again."""


@dataclass(frozen=True, slots=True)
class Program:
    """`C = A * 2 + 1` over an array of drawn extents, and `D = B + 1` over one of [n, m] which gives the sizes.

    `explicit`: the sizes are arguments, in front of the arrays; then there may be no B and D.
    """

    extents: tuple[str, ...]
    dtype: str
    explicit: bool
    bare: bool
    steps: int

    def shape(self, n: int, m: int) -> tuple[int, ...]:
        """The extents of A and C, as whole numbers of any size."""
        return tuple(eval(text, {}, {"n": n, "m": m}) for text in self.extents)

    @property
    def sizes_given(self) -> tuple[str, ...]:
        """The sizes that are arguments."""
        return self.sizes if self.explicit else ()

    @property
    def sizes(self) -> tuple[str, ...]:
        """The sizes that are in the program."""
        return tuple(name for name in "nm" if not self.bare or any(name in text for text in self.extents))

    def __str__(self) -> str:
        sizes = "n, m explicit" if self.explicit else "n, m from B"
        return f"C{list(self.extents)} = A*2 + 1, {self.dtype}, {sizes}, steps {self.steps}"


@dataclass(frozen=True, slots=True)
class Call:
    """A call by the number that it was drawn from."""

    seed: int
    program: int
    n: int
    m: int
    damage: str

    @property
    def reproducer(self) -> str:
        """Python that runs it again."""
        return f"from tensorlang.testing.calls import call_of, run_call; run_call(call_of({self.seed}))"

    def __str__(self) -> str:
        return f"{program_of(self.program)}; n = {self.n}, m = {self.m}, {self.damage}\n  {self.reproducer}"


@dataclass(slots=True)
class Counts:
    """What became of calls: `ran`, `refused`, `no memory`; and the first faults as text."""

    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        known = ", ".join(f"{n} {what}" for what, n in sorted(self.outcomes.items()))
        return "\n".join([f"{known}; {len(self.faults)} wrong", *self.faults])


def draw_call(rng: Random) -> Call:
    """Draw a call; `str` of it says what it is and how to run it again."""
    return call_of(rng.getrandbits(48))


def call_of(seed: int) -> Call:
    """The call of a number."""
    rng = Random(seed)
    program = rng.randrange(PROGRAMS)
    n, m = (rng.choice((0, 1, 2, 3, 5, 7, 8)) for _ in "nm")
    made = program_of(program)
    while math.prod(made.shape(n, m)) * 8 >= PAGES * 4096:
        n, m = n // 2, m // 2
    known = [name for name, damage in DAMAGES.items() if made.sizes_given or not damage.of_sizes]
    return Call(seed, program, n, m, "nothing" if rng.random() < 0.2 else rng.choice(known))


def run_call(call: Call) -> str:
    """Run a call on both roads and return what became of it: `ran`, `refused` or `no memory`.

    Raises CallFault if it is wrong.
    """
    found = [_run(call, road) for road in _ROADS]
    if found[0] != found[1]:
        raise CallFault(f"the fast check says {found[0]}, the slow one {found[1]}: {call}")
    return found[0]


@cache
def program_of(number: int) -> Program:
    """The program of a number."""
    rng = Random(f"program {number}")
    extents = tuple(rng.choice(_EXTENTS) for _ in range(rng.randint(1, 3)))
    explicit = rng.random() < 0.4
    return Program(extents, rng.choice(_DTYPES), explicit, explicit and rng.random() < 0.5, rng.randrange(4))


@cache
def _built(number: int) -> Executable:
    program = program_of(number)
    n, m = te.var("n"), te.var("m")
    shape = tuple(eval(text, {}, {"n": n, "m": m}) for text in program.extents)
    A = te.placeholder(shape, program.dtype, name="A")
    T = te.compute(shape, lambda *i: A[i] * te.const(2, program.dtype), name="T")
    C = te.compute(shape, lambda *i: T[i] + te.const(1, program.dtype), name="C")
    B = te.placeholder((n, m), program.dtype, name="B")
    D = te.compute((n, m), lambda i, j: B[i, j] + te.const(1, program.dtype), name="D")
    arrays = [A, C] if program.bare else [A, B, C, D]
    s = te.create_schedule([t.op for t in arrays if t in (C, D)])
    outer, inner = s[C].split(C.op.axis[0], factor=4)
    if program.steps == 1:
        s[T].compute_at(s[C], outer)
    elif program.steps == 2:
        s[C].parallel(outer)
        s[C].vectorize(inner)
    elif program.steps == 3 and len(shape) > 1:
        s[T].fuse(*T.op.axis[:2])
        s[T].parallel(s[T].leaf_iter_vars[0])
    sizes = [{"n": n, "m": m}[name] for name in program.sizes_given]
    made: Executable = tensorlang.build(s, [*sizes, *arrays], target="llvm", name="call")
    return made


@cache
def _memory() -> dict[str, GuardedMemory]:
    return {name: GuardedMemory() for name in "ABCD"}


def _run(call: Call, road: str) -> str:
    """Run on one road, and look at all memory afterwards."""
    program, rng = program_of(call.program), Random(call.seed ^ 1)
    given = _arguments(call, rng)
    DAMAGES[call.damage].apply(given, rng)
    before = {name: array.copy() for name, array in given.arrays.items()}
    try:
        _entry(call.program, road)(*given.args(), **given.named)
        outcome = "ran"
    except ArgumentError:
        outcome = "refused"
    except MemoryError:
        outcome = "no memory"
    except TensorlangError as error:
        raise CallFault(f"{type(error).__name__}: {error}: {call}") from error
    except Exception as error:
        raise CallFault(f"not an error of tensorlang, {type(error).__name__}: {error}: {call}") from error
    touched = [name for name, memory in _memory().items() if not memory.is_intact()]
    if touched:
        raise CallFault(f"memory around {', '.join(touched)} was written by a call that {outcome}: {call}")
    _compare(program, given, before, outcome, call)
    return outcome


def _arguments(call: Call, rng: Random) -> Given:
    """The arrays and sizes of a call as they should be."""
    program = program_of(call.program)
    shapes = {"A": program.shape(call.n, call.m), "B": (call.n, call.m)}
    shapes |= {"C": shapes["A"], "D": shapes["B"]}
    names = "AC" if program.bare else "ABCD"
    memory = _memory()
    arrays: dict[str, Array] = {}
    for name in "ABCD":
        arrays[name] = memory[name].array(shapes[name], program.dtype, rng.random() < 0.5)
        arrays[name][...] = np.arange(arrays[name].size).reshape(shapes[name]) % 50
    sizes: dict[str, Any] = {name: {"n": call.n, "m": call.m}[name] for name in program.sizes_given}
    kept = {name: arrays[name] for name in names}
    return Given(kept, sizes, list(names), program.dtype, memory)


def _entry(program: int, road: str) -> Callable[..., None]:
    """A kernel with all of its checks, or the road that begins with those in Python."""
    kernel = _built(program)
    entry = kernel.__call__
    owner = getattr(entry, "__self__", None)
    return owner.slow if road == "slow" and isinstance(owner, cpython.Owner) else entry


def _compare(program: Program, given: Given, before: dict[str, Array], outcome: str, call: Call) -> None:
    """What ran has written what NumPy would, all of it; what was refused has written nothing."""
    if outcome != "ran":
        same = all(np.array_equal(given.arrays[name], before[name]) for name in before)
        if not same:
            raise CallFault(f"a call that was {outcome} has written: {call}")
        return
    n, m = given.meaning(before)
    a = before["A"]
    if given.is_wrong or a.shape != program.shape(n, m) or given.arrays["C"].shape != a.shape:
        raise CallFault(f"a call with wrong arguments ran: {call}")
    wanted = {"C": a * a.dtype.type(2) + a.dtype.type(1)}
    if "B" in before:
        wanted["D"] = before["B"] + a.dtype.type(1)
    for name, values in wanted.items():
        if not np.array_equal(given.arrays[name], values):
            raise CallFault(f"{name} is not what NumPy computes: {call}")


def run_calls(count: int, seed: int = 0) -> Counts:
    """Run drawn calls, in processes of their own: after one that is killed, the next goes on behind it."""
    counts = Counts()
    done = 0
    while done < count and len(counts.faults) < 20:
        last = _run_apart(counts, seed, done, count)
        done = last + 1
    return counts


def _run_apart(counts: Counts, seed: int, first: int, count: int) -> int:
    """Run calls in another process; returns the number of the last that began."""
    code = f"from tensorlang.testing.calls import tell; tell({seed}, {first}, {count})"
    last = count - 1
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        begun = first - 1
        for line in process.stdout:
            kind, _, text = line.rstrip("\n").partition(" ")
            if kind == "begin":
                begun = int(text)
            elif kind == "outcomes":
                counts.outcomes.update({what: int(n) for what, n in (part.split("=") for part in text.split(","))})
            elif kind == "fault":
                counts.faults.append(text.replace("\\n", "\n"))
    if process.returncode:
        last = max(begun, first)
        call = next(c for k, c in enumerate(_calls(seed)) if k == last)
        counts.faults.append(f"the process was killed ({process.returncode}): {call}")
    return last


def _calls(seed: int) -> Iterator[Call]:
    rng = Random(seed)
    while True:
        yield draw_call(rng)


def tell(seed: int, first: int, count: int) -> None:
    """Run calls and print which is next and what became of them, for `run_calls`."""
    outcomes: Counter[str] = Counter()
    for number, call in zip(range(count), _calls(seed), strict=False):
        if number < first:
            continue
        print("begin", number, flush=True)
        try:
            outcomes[run_call(call)] += 1
        except CallFault as fault:
            outcomes["wrong"] += 1
            text = str(fault).replace("\n", "\\n")
            print("fault", text.encode("ascii", "backslashreplace").decode())
    print("outcomes", ",".join(f"{what.replace(' ', '_')}={n}" for what, n in outcomes.items()), flush=True)
