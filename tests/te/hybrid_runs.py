"""Runs a script both ways: as plain Python, and as the tensor program that is read from it."""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import te
from tensorlang.ir.stmt import For, Kernel, walk
from tensorlang.ir.verify import verify
from tensorlang.te.hybrid import Script
from tensorlang.te.operation import HybridOp, buffers
from tensorlang.te.program import Program, canonical, read_buffers
from tensorlang.te.reference import evaluate

Array = npt.NDArray[Any]
_files = count()


def floats(*shape: int, dtype: str = "float32") -> Array:
    """Small whole numbers, so that sums are exact."""
    return np.random.default_rng(sum(shape) + 1).integers(-4, 5, shape).astype(dtype)


def whole(*shape: int, high: int = 5, dtype: str = "int32") -> Array:
    """Numbers from 0 below `high`."""
    return np.random.default_rng(sum(shape) + high).integers(0, high, shape).astype(dtype)


def op_of(script: Script, **arguments: Any) -> HybridOp:
    """The operation of a script, with known sizes."""
    op = declare(script, arguments, symbolic=False)[1][0].op
    assert isinstance(op, HybridOp)
    return op


def loops_of(op: HybridOp) -> list[For]:
    """The loops, in order."""
    return [s for s in walk(op.body) if isinstance(s, For)]


def declare(script: Script, arguments: Mapping[str, Any], symbolic: bool = True) -> tuple[Program, list[te.Tensor]]:
    """The program of a script, and the tensors it returns; arrays become placeholders, their extents sizes."""
    given = {name: _tensor(name, value, symbolic) for name, value in arguments.items()}
    made = script(**given)
    tensors = list(made) if isinstance(made, tuple) else [made]
    program, _ = canonical(tensors)
    return program, tensors


def _tensor(name: str, value: Any, symbolic: bool) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    shape = tuple(te.var(f"n{extent}") for extent in value.shape) if symbolic else value.shape
    return te.placeholder(shape, value.dtype.name, name)


def as_program(script: Script, arguments: Mapping[str, Any], symbolic: bool = True) -> list[Array]:
    """The arrays that the program of a script returns."""
    program, tensors = declare(script, arguments, symbolic)
    if not symbolic:
        check_body(program)
    arrays = {n: v.copy() for n, v in arguments.items() if isinstance(v, np.ndarray)}
    wanted = {b for b in program.buffers if b in arrays}
    sizes = {f"n{e}": e for v in arrays.values() for e in v.shape} if symbolic else {}
    result = evaluate(program, {n: arrays[n] for n in wanted}, sizes)
    return list(result.values())[: len(tensors)]


def check_body(program: Program) -> None:
    """The bodies of hybrid operations of known sizes are well-formed loop IR."""
    for op in program.ops:
        if isinstance(op, HybridOp):
            own = {b.name: b for b in buffers(op)}
            read = {name: program.buffers[name] for name in read_buffers(op)}
            kernel = Kernel("body", tuple({**read, **own}.values()), (), tuple(own), op.body)
            verify(kernel, lanes=False)


def as_python(script: Script, arguments: Mapping[str, Any]) -> list[Array]:
    """The arrays that the script returns when it runs as plain Python."""
    copies = {n: v.copy() if isinstance(v, np.ndarray) else v for n, v in arguments.items()}
    made = script.run(**copies)
    return list(made) if isinstance(made, tuple) else [made]


def agree(script: Script, **arguments: Any) -> None:
    """Both give the same arrays, for sizes that are known and for symbolic ones."""
    wanted = as_python(script, arguments)
    for symbolic in (False, True):
        got = as_program(script, arguments, symbolic)
        assert len(got) == len(wanted)
        for a, b in zip(got, wanted, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            np.testing.assert_array_equal(a, b)


def from_text(text: str, name: str, **names: Any) -> Script:
    """The script that a text defines, among these other names."""
    file = f"<script {next(_files)}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    known = {"te": te, **names}
    exec(compile(text, file, "exec"), known)
    made = known[name]
    assert isinstance(made, Script)
    return made
