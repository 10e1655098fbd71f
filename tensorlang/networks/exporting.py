"""A compiled network as files: its kernels and a function that calls them, its weights, what was proven."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tensorlang import dtypes
from tensorlang.driver import Lowered
from tensorlang.errors import ArgumentError, TargetError
from tensorlang.export.compiling import refuse_target
from tensorlang.export.network import WEIGHTS, Held, Parts, Use, compiled_network, sealed
from tensorlang.export.variants import variants_of
from tensorlang.export.words import c_names
from tensorlang.export.writing import Choices, Exported, name_of, write
from tensorlang.networks.model import Model, Step
from tensorlang.networks.network import Array
from tensorlang.runtime.memory import ALIGNMENT
from tensorlang.target.llvm.library.chain import SEAL_BYTES, Place


def export_model(
    model: Model,
    path: str | Path,
    how: Choices,
    isas: Sequence[str] = (),
    embed: bool = False,
    check: Sequence[Any] | None = None,
) -> Exported:
    """Write a model as `Model.export` says."""
    name = name_of(path)
    if model.fallback:
        nodes = "".join(f"\n  {refusal}" for refusal in model.fallback)
        raise TargetError(f"{model.name} has nodes that run in onnxruntime, which a library does without:{nodes}")
    model = model if model.again is None else model.again()
    lowered = _lowered(model.steps)
    for kernel in lowered:
        refuse_target(kernel.target)
    words = [*model.inputs, *model.outputs]
    arrays = dict(zip([*model.inputs.values(), *model.outputs.values()], words, strict=True))
    used = dict.fromkeys([*arrays, *(a for step in model.steps for a in step.used)])
    spelt = dict(zip(used, c_names([arrays.get(a, a) for a in used], taken=(name, WEIGHTS)), strict=True))
    places, pieces = _placed(model, list(arrays), list(used))
    variants, left_out = _variants(lowered, isas)
    parts = Parts(
        name,
        {spelt[a]: Held(str(model.shapes[a][1]), model.shapes[a][0], place) for a, place in places.items()},
        tuple(spelt[a] for a in arrays),
        {word: spelt[a] for word, a in model.inputs.items()},
        {word: spelt[a] for word, a in model.outputs.items()},
        variants,
        [_use(step, lowered, spelt) for step in model.steps],
        model.arena.size,
        sealed(pieces) if pieces else b"",
        embed and bool(pieces),
        left_out,
    )
    answer = None if check is None else _answer(model, check, [] if embed or not pieces else [parts.weights])
    return write(path, compiled_network(parts, how.threads, how.faces), how, answer)


def _lowered(steps: Sequence[Step]) -> list[Lowered]:
    """The different kernels of steps, as they were lowered."""
    found: list[Lowered] = []
    for run in dict.fromkeys(step.run for step in steps):
        if not isinstance(run.origin, Lowered):
            raise TargetError(
                f"{run.entry_name} was not built here; export the model where tensorlang.compile makes it"
            )
        if run.origin.schedule.state.facts:
            facts = ", ".join(sorted({f.array for f in run.origin.schedule.state.facts}))
            raise TargetError(f"a schedule of the network assumes facts about {facts}, which nobody tests in a library")
        found.append(run.origin)
    return found


def _placed(model: Model, arguments: Sequence[str], used: Sequence[str]) -> tuple[dict[str, Place], list[bytes]]:
    """Where every array is, and the weights, in the order in which they are read, each at a multiple of 64."""
    places = {name: Place("argument", k) for k, name in enumerate(arguments)}
    pieces: list[bytes] = []
    end = SEAL_BYTES
    for name in used:
        if name in model.weights:
            data = np.ascontiguousarray(model.weights[name]).tobytes()
            places[name] = Place("weights", end)
            pieces.append(data + bytes(-len(data) % ALIGNMENT))
            end += len(pieces[-1])
        elif name not in places:
            places[name] = Place("arena", model.arena.places[name])
    return places, pieces


def _use(step: Step, lowered: Sequence[Lowered], spelt: Mapping[str, str]) -> Use:
    """A step, with its arrays in the order of the kernel's own parameters."""
    given = {b.name: spelt[array] for b, array in zip(step.run.signature, step.arrays, strict=True)}
    guards = tuple(replace(g, array=spelt[g.array]) for g in step.guards)
    number = next(k for k, kernel in enumerate(lowered) if kernel is step.run.origin)
    origin = {"stage": step.stage, "node": step.origin.node, "op": step.origin.op}
    about = {**origin, "operations": step.operations, "algorithm": step.algorithm}
    return Use(number, tuple(given[p.name] for p in step.run.kernel.params), guards, about)


def _variants(lowered: Sequence[Lowered], isas: Sequence[str]) -> tuple[list[list[Lowered]], dict[str, str]]:
    """The kernels for each instruction set that all of them have, the best first; why others are left out."""
    found, left_out = list[list[Lowered]](), dict[str, str]()
    for kernel in lowered:
        made, missing = variants_of(kernel, isas, kernel.elsewhere)
        found.append(made)
        left_out |= missing
    shared = [t for t in ([v.target for v in found[0]] if found else []) if all(_at(made, t) for made in found)]
    if found and not shared:
        raise TargetError(f"none of {', '.join(isas)} can run all kernels: {next(iter(left_out.values()))}")
    return [[v for t in shared for v in _at(made, t)] for made in found], left_out


def _at(variants: Sequence[Lowered], target: Any) -> list[Lowered]:
    return [v for v in variants if v.target == target]


def _answer(model: Model, check: Sequence[Any], weights: Sequence[bytes]) -> list[Array]:
    """The arrays of a call before it, then after it: with the outputs that are given, or those that the model makes."""
    inputs, wanted = list(check[: len(model.inputs)]), list(check[len(model.inputs) :])
    if len(inputs) < len(model.inputs) or (wanted and len(wanted) != len(model.outputs)):
        counts = f"{len(model.inputs)} inputs, or those and {len(model.outputs)} outputs"
        raise ArgumentError(f"export: check is {counts}, got {len(check)} arrays")
    given = model.checked(inputs)
    found = dict(zip(model.outputs.values(), model.run(inputs), strict=True))
    for (word, name), array in zip(model.outputs.items(), wanted, strict=False):
        shape, dtype = model.shapes[name]
        if np.shape(array) != shape or np.asarray(array).dtype != dtypes.info(dtype).numpy:
            raise ArgumentError(f"export: the output {word} in check is {dtype}{list(shape)}, got {np.shape(array)}")
        found[name] = np.ascontiguousarray(array)
    held = [np.frombuffer(data, np.uint8) for data in weights]
    empty = [np.zeros_like(found[name]) for name in dict.fromkeys(model.outputs.values())]
    after = [found[name] for name in dict.fromkeys(model.outputs.values())]
    return [*given, *empty, *held, *given, *after, *held]
