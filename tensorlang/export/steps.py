"""Whether what the kernels of an exported network pass on arrives: read from its metadata, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tensorlang import dtypes
from tensorlang.errors import RecordError
from tensorlang.te.axis import extent_of
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
    and shares no byte of the arena with another one that is in use then. Inputs and weights are never written.
    """
    arrays = network["arrays"]
    made = set(network["inputs"].values()) | {n for n, a in arrays.items() if a["in"] == "weights"}
    given = frozenset(made)
    lives: dict[str, _Life] = {}
    for number, step in enumerate(network["steps"]):
        kernel, program = network["kernels"][step["kernel"]], programs[step["kernel"]]
        for parameter, name in zip(kernel["parameters"], step["arrays"], strict=True):
            _check_shape(name, arrays[name], program, parameter)
            written = parameter in program.outputs or program.is_output(parameter)
            if written and name in given:
                raise RecordError(f"step {number} writes {name}, which is an input or a weight")
            if not written and name not in made:
                raise RecordError(f"step {number} reads {name} before it is written")
            _live(lives, network, name, number)
        made.update(step["arrays"])
    if missing := set(network["outputs"].values()) - made:
        raise RecordError(f"no step writes {', '.join(sorted(missing))}")
    _check_apart(lives)


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
