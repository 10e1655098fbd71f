"""Whether what the kernels of an exported network pass on arrives: read from its metadata, as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import prod
from typing import Any, TypeAlias

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import RecordError
from tensorlang.export.metadata import REPEAT
from tensorlang.te.axis import extent_of
from tensorlang.te.branches import Guard, Guards, needed_under
from tensorlang.te.program import Program


@dataclass(slots=True)
class _Life:
    """An array in the arena: its bytes there, and the first and the last step in which it is in use."""

    start: int
    end: int
    first: int
    last: int


def calls_of(steps: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The calls of kernels among steps, those in loops too."""
    for step in steps:
        yield from calls_of(step["steps"]) if REPEAT in step else (step,)


def check_steps(network: Mapping[str, Any], programs: Sequence[Program]) -> None:
    """Look at the steps of a network, whose kernels have these programs; RecordError for what cannot be right.

    Every array has the dtype and the shape that its kernel wants, lies within its block, is written before it is read,
    and shares no byte of the arena with another one that is in use then. Inputs and weights are never written. What a
    step that may be skipped writes is read where that step has run, or by choices that take something else then. What
    an iteration of a loop reads is there in all of them: its states, and what was written before the loop.
    """
    given = {*network["inputs"].values(), *(n for n, a in network["arrays"].items() if a["in"] == "weights")}
    check = _Check(network, programs, given)
    made: Made = dict.fromkeys(given, frozenset())
    check.steps(network["steps"], made)
    if missing := {name for name in network["outputs"].values() if made.get(name, True)}:
        raise RecordError(f"no step writes {', '.join(sorted(missing))} in all calls")
    _check_apart(check.lives)


Made: TypeAlias = dict[str, Guards]
"""Arrays that are written, and what has to be so where they are."""


@dataclass(slots=True)
class _Check:
    """A network that is looked at: its arrays that nobody writes, the steps so far, and when arrays are in use."""

    network: Mapping[str, Any]
    programs: Sequence[Program]
    given: set[str]
    number: int = 0
    lives: dict[str, _Life] = field(default_factory=dict)

    def steps(self, steps: Sequence[Mapping[str, Any]], made: Made) -> None:
        """Look at steps in turn, with what is written before them; what they write is added to that."""
        for step in steps:
            guards = _guards(self.network["arrays"], step, made, self.number)
            for guard in guards:
                self._live(guard.array)
            if REPEAT in step:
                self._loop(step, guards, made)
            else:
                self._call(step, guards, made)
            self.number += 1

    def _call(self, step: Mapping[str, Any], guards: Guards, made: Made) -> None:
        kernel, program = self.network["kernels"][step["kernel"]], self.programs[step["kernel"]]
        names = dict(zip(kernel["parameters"], step["arrays"], strict=True))
        choices = needed_under(program)
        for parameter, name in names.items():
            _check_shape(name, self.network["arrays"][name], program, parameter)
            if parameter in program.outputs or program.is_output(parameter):
                self._write(name, guards, made)
                continue
            chosen = {replace(g, array=names.get(g.array, "")) for g in choices[program.producer[parameter]]}
            self._read(name, guards | chosen, made)

    def _loop(self, step: Mapping[str, Any], guards: Guards, made: Made) -> None:
        """Look at a loop. What is there before it, and what an iteration leaves to the next, is in use all the time."""
        loop, always = step[REPEAT], frozenset[Guard]()
        for name in (loop["trips"], loop["condition"], *loop["states"].values()):
            self._read(name, guards, made)
        inside: Made = {name: always for name, under in made.items() if under <= guards}
        before = {*inside}
        for name in (own := (loop["number"], loop["goes_on"], *loop["states"])):
            self._write(name, always, inside)
        self.number += 1
        self.steps(step["steps"], inside)
        told = () if loop["tells"] is None else (loop["tells"],)
        for name in (*told, *loop["following"].values(), *loop["rows"].values()):
            self._read(name, always, inside)
        for name in (*loop["last"], *loop["rows"]):
            self._write(name, guards, made)
        for name in (*own, *(name for name in _used(step["steps"]) if name in before)):
            self._live(name)
        self._check_loop(loop, told)

    def _check_loop(self, loop: Mapping[str, Any], told: Sequence[str]) -> None:
        """The kinds of a loop's arrays; each state has one that it is at first, and one that follows."""

        def kind(name: str) -> tuple[str, list[int]]:
            array = self.network["arrays"][name]
            return array["dtype"], array["shape"]

        pairs = [*loop["states"].items(), *loop["following"].items(), *loop["last"].items()]
        rows = [(kind(name), kind(row)) for name, row in loop["rows"].items()]
        counts = [shape[:1] for (_, shape), _ in rows]
        fits = (
            loop["states"].keys() == loop["following"].keys() >= {*loop["last"].values()}
            and all(kind(name) == kind(other) for name, other in pairs)
            and all((dtype, shape[1:]) == row for (dtype, shape), row in rows)
            and counts[1:] == counts[:-1]
            and all(kind(name)[0] == "int64" and prod(kind(name)[1]) == 1 for name in (loop["trips"], loop["number"]))
            and all(kind(n)[0] == "bool" and prod(kind(n)[1]) == 1 for n in (loop["condition"], loop["goes_on"], *told))
        )
        if not fits:
            raise RecordError(f"the loop before step {self.number} passes on arrays of other dtypes or shapes")

    def _write(self, name: str, guards: Guards, made: Made) -> None:
        if name in self.given:
            raise RecordError(f"step {self.number} writes {name}, which is an input or a weight")
        if name not in made or guards <= made[name]:
            made[name] = guards
        self._live(name)

    def _read(self, name: str, guards: Guards, made: Made) -> None:
        if name not in made or not made[name] <= guards:
            raise RecordError(f"step {self.number} reads {name} before it is written")
        self._live(name)

    def _live(self, name: str) -> None:
        _live(self.lives, self.network, name, self.number)


def _used(steps: Sequence[Mapping[str, Any]]) -> set[str]:
    """All arrays of steps, those in loops too."""
    found: set[str] = set()
    for step in steps:
        found |= {guard[0] for guard in step.get("guards", ())}
        if REPEAT in step:
            loop = step[REPEAT]
            found |= {loop["trips"], loop["condition"], *loop["states"].values(), *loop["last"], *loop["rows"]}
            found |= _used(step["steps"])
        else:
            found |= {*step["arrays"]}
    return found


def _guards(arrays: Mapping[str, Any], step: Mapping[str, Any], made: Mapping[str, Guards], number: int) -> Guards:
    """What has to be so where a step runs, which was written before; of earlier versions nothing has to."""
    guards = frozenset(Guard(*guard) for guard in step.get("guards", ()))
    for guard in guards:
        array = arrays[guard.array]
        if array["dtype"] != "bool" or not 0 <= guard.at < prod(array["shape"]):
            raise RecordError(f"step {number} depends on {guard.array}[{guard.at}], which is no truth value")
        if guard.array not in made or not made[guard.array] <= guards:
            raise RecordError(f"step {number} depends on {guard.array} before it is written")
    return guards


def _check_shape(name: str, array: Mapping[str, Any], program: Program, parameter: str) -> None:
    buffer = program.buffers[parameter]
    shape = [extent_of(extent) for extent in buffer.shape]
    if [array["dtype"], array["shape"]] != [buffer.dtype, shape]:
        wanted = f"{buffer.dtype}{shape}"
        raise RecordError(f"{name} is {array['dtype']}{array['shape']}, and its kernel takes {wanted}")


def _live(lives: dict[str, _Life], network: Mapping[str, Any], name: str, number: int) -> None:
    array = network["arrays"][name]
    if array["in"] == "argument":
        return
    start = int(array["at"])
    end = start + prod(array["shape"]) * dtypes.info(array["dtype"]).bytes
    within = network["arena"] if array["in"] == "arena" else network["weights"]["bytes"]
    if start < 0 or end > within:
        raise RecordError(f"{name} lies outside of the {array['in']}")
    if array["in"] == "arena":
        lives.setdefault(name, _Life(start, end, number, number)).last = number


def _check_apart(lives: Mapping[str, _Life]) -> None:
    """No two arrays that are in use at the same time share a byte."""
    names = sorted(lives, key=lambda name: lives[name].start)
    for k, one in enumerate(names):
        for other in names[k + 1 :]:
            a, b = lives[one], lives[other]
            if b.start >= a.end:
                break
            if a.first <= b.last and b.first <= a.last:
                raise RecordError(f"{one} and {other} share memory while both are in use")
