"""Whether what the kernels of an exported network pass on arrives: read from its metadata, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import RecordError
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


def check_steps(network: Mapping[str, Any], programs: Sequence[Program]) -> None:
    """Look at the steps of a network, whose kernels have these programs; RecordError for what cannot be right.

    Every array has the dtype and the shape that its kernel wants, lies within its block, is written before it is read,
    and shares no byte of the arena with another one that is in use then. Inputs and weights are never written. What a
    step that may be skipped writes is read where that step has run, or by choices that take something else then.
    """
    arrays = network["arrays"]
    given = {*network["inputs"].values(), *(n for n, a in arrays.items() if a["in"] == "weights")}
    made: dict[str, Guards] = dict.fromkeys(given, frozenset())
    lives: dict[str, _Life] = {}
    for number, step in enumerate(network["steps"]):
        kernel, program = network["kernels"][step["kernel"]], programs[step["kernel"]]
        guards = _guards(arrays, step, made, number)
        names = dict(zip(kernel["parameters"], step["arrays"], strict=True))
        choices = needed_under(program)
        for parameter, name in names.items():
            _check_shape(name, arrays[name], program, parameter)
            if parameter in program.outputs or program.is_output(parameter):
                if name in given:
                    raise RecordError(f"step {number} writes {name}, which is an input or a weight")
                if name not in made or guards <= made[name]:
                    made[name] = guards
                continue
            chosen = {replace(g, array=names.get(g.array, "")) for g in choices[program.producer[parameter]]}
            if name not in made or not made[name] <= guards | chosen:
                raise RecordError(f"step {number} reads {name} before it is written")
        for name in (*step["arrays"], *(guard.array for guard in guards)):
            _live(lives, network, name, number)
    if missing := {name for name in network["outputs"].values() if made.get(name, True)}:
        raise RecordError(f"no step writes {', '.join(sorted(missing))} in all calls")
    _check_apart(lives)


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
