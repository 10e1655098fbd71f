"""A compiled network as files: its kernels and a function that calls them, its weights, what was proven."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tensorlang import dtypes
from tensorlang.driver import Lowered
from tensorlang.errors import ArgumentError, TargetError
from tensorlang.export.compiling import refuse_target
from tensorlang.export.network import WEIGHTS, Held, Parts, compiled_network, sealed
from tensorlang.export.variants import variants_of
from tensorlang.export.words import c_names
from tensorlang.export.writing import Choices, Exported, name_of, write
from tensorlang.networks.model import Model
from tensorlang.networks.network import Array
from tensorlang.networks.placing import Layout
from tensorlang.target.llvm.library.calls import Place


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
    for step in model.steps:
        refuse_target(step.run.target)
    words = [*model.inputs, *model.outputs]
    arrays = dict(zip([*model.inputs.values(), *model.outputs.values()], words, strict=True))
    used = dict.fromkeys([*arrays, *(a for step in model.steps for a in step.used)])
    spelt = dict(zip(used, c_names([arrays.get(a, a) for a in used], taken=(name, WEIGHTS)), strict=True))
    layout = Layout()
    for number, array in enumerate(arrays):
        shape, dtype = model.shapes[array]
        layout.arrays[spelt[array]] = Held(str(dtype), shape, Place("argument", number))
    steps = layout.steps(model, spelt)
    variants, left_out = _variants(layout.kernels, isas)
    parts = Parts(
        name,
        layout.arrays,
        tuple(spelt[a] for a in arrays),
        {word: spelt[a] for word, a in model.inputs.items()},
        {word: spelt[a] for word, a in model.outputs.items()},
        variants,
        steps,
        layout.arena,
        sealed(layout.pieces) if layout.pieces else b"",
        embed and bool(layout.pieces),
        left_out,
    )
    answer = None if check is None else _answer(model, check, [] if embed or not layout.pieces else [parts.weights])
    return write(path, compiled_network(parts, how.threads, how.faces), how, answer)


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
        found[name] = np.require(array, requirements="C")
    held = [np.frombuffer(data, np.uint8) for data in weights]
    empty = [np.zeros_like(found[name]) for name in dict.fromkeys(model.outputs.values())]
    after = [found[name] for name in dict.fromkeys(model.outputs.values())]
    return [*given, *empty, *held, *given, *after, *held]
