"""Does a schedule keep the meaning of its program? Run it on every target and compare with the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes
from tensorlang.driver import build
from tensorlang.errors import ArgumentError
from tensorlang.ir.expr import Buffer, Var
from tensorlang.schedule import Schedule
from tensorlang.target.spec import Target
from tensorlang.te.numpy_eval import extent
from tensorlang.te.operation import HybridOp, PlaceholderOp, buffers
from tensorlang.te.program import Program
from tensorlang.te.reference import evaluate, tolerance
from tensorlang.testing.compare import assert_allclose
from tensorlang.testing.layouts import as_declared, laid_out

Array = npt.NDArray[Any]
TARGETS = ("interpreter", "llvm")
_LARGEST = 3  # of the inputs: small whole numbers keep short float sums exact, in 16 bits too


def check_schedule(
    schedule: Schedule,
    args: Sequence[Any],
    sizes: Mapping[str, int] | None = None,
    targets: Sequence[str | Target] = TARGETS,
    inputs: Mapping[str, Array] | None = None,
    seed: int = 0,
) -> None:
    """Build `schedule` for each target, run it, and raise AssertionError unless it agrees with the reference.

    `args` are those of `tensorlang.build`. `sizes` gives every symbolic size by name. Inputs hold seeded whole numbers
    from -3 to 3 (from 0, if unsigned), except those given in `inputs` by name. Outputs must agree within
    `tensorlang.te.reference.tolerance`, and exactly where no float is involved. Raises ArgumentError when a size is
    missing.
    """
    known = dict(sizes or {})
    arrays = _inputs(schedule.original, known, np.random.default_rng(seed)) | dict(inputs or {})
    expected = evaluate(schedule.original, arrays, known)
    rtol, atol = tolerance(schedule.original, known)
    for target in targets:
        kernel = build(schedule, args, target=target)
        outputs = _outputs(schedule.original, arrays, expected)
        outputs = {name: laid_out(schedule, name, array, known) for name, array in outputs.items()}
        kernel(*(_argument(schedule, a, arrays, outputs, known) for a in args))
        for name, array in outputs.items():
            array = as_declared(schedule, name, array, expected[name].shape, known)
            try:
                assert_allclose(array, expected[name], rtol=rtol, atol=atol)
            except AssertionError as error:
                raise AssertionError(
                    f"{name} is wrong on {target} with {known or 'no sizes'}:{error}\n{schedule}"
                ) from None


def _inputs(program: Program, sizes: Mapping[str, int], rng: np.random.Generator) -> dict[str, Array]:
    missing = [v.name for v in program.sizes if v.name not in sizes]
    if missing:
        raise ArgumentError(f"no value for {', '.join(missing)}; pass sizes={{{missing[0]!r}: ...}}")
    return {op.name: _whole_numbers(buffers(op)[0], sizes, rng) for op in program.ops if isinstance(op, PlaceholderOp)}


def _whole_numbers(buffer: Buffer, sizes: Mapping[str, int], rng: np.random.Generator) -> Array:
    dtype = dtypes.info(buffer.dtype)
    low = 0 if dtype.kind in ("uint", "bool") else -_LARGEST
    high = 1 if dtype.kind == "bool" else _LARGEST
    shape = tuple(extent(e, sizes) for e in buffer.shape)
    return rng.integers(low, high + 1, shape).astype(dtype.numpy)


def _outputs(program: Program, arrays: Mapping[str, Array], expected: Mapping[str, Array]) -> dict[str, Array]:
    """What the arrays of outputs hold before a run: an input that is updated in place its values, the others noise.

    A hybrid operation may leave elements alone: its new arrays begin as zeros, as in the reference.
    """
    made = {}
    for name, array in expected.items():
        root, _ = program.storage[name]
        fresh = 0 if isinstance(program[program.producer[root]], HybridOp) else 99
        made[name] = arrays[root].copy() if root in arrays else np.full(array.shape, fresh).astype(array.dtype)
    return made


def _argument(
    schedule: Schedule, arg: Any, arrays: Mapping[str, Array], outputs: Mapping[str, Array], sizes: Mapping[str, int]
) -> Any:
    if isinstance(arg, Var):
        return sizes[arg.name]
    name = schedule.buffer_of(arg)
    storage = schedule.original.storage
    held = {storage[o][0]: array for o, array in outputs.items()}
    return outputs[name] if name in outputs else held.get(name, laid_out(schedule, name, arrays[name].copy(), sizes))
