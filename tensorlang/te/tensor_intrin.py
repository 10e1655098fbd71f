"""Intrinsics: a computation of fixed size, and the machine code that does it. `tensorize` puts one into a schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Const, Expr
from tensorlang.ir.stmt import Seq, Stmt
from tensorlang.location import Location, caller
from tensorlang.names import lookup
from tensorlang.te.check import check_tensor_name
from tensorlang.te.intrinsic import TensorIntrin, check_declaration
from tensorlang.te.machine import evaluate
from tensorlang.te.operation import ComputeOp, Operation, PlaceholderOp, Tensor
from tensorlang.te.program import Program, canonical, unique
from tensorlang.te.tile_buffer import TileBuffer, decl_buffer

_DECLARED: dict[str, dict[str, TensorIntrin]] = {}
"""Name -> hash -> intrinsic, of all that this process has declared."""


def decl_tensor_intrin(
    op: Operation,
    fcompute: Callable[..., Any],
    name: str = "tensor_intrin",
    binds: Mapping[Tensor, TileBuffer] | None = None,
    scalar_params: Sequence[Any] | None = None,
    default_buffer_params: Mapping[str, Any] | None = None,
    *,
    source: str = "",
    architecture: str = "",
    features: Sequence[str] = (),
    lanes: int = 0,
    group: str = "",
    around: tuple[str, str] | None = None,
) -> TensorIntrin:
    """Declare an intrinsic: `op` is what it computes on a tile, `fcompute(ins, outs)` the statements that do it.

    `fcompute` gets the tiles (TileBuffer) of the inputs, in the order of `op.input_tensors`, and of the outputs. It
    returns the statement `body`, or `(body, reset, update)` for a reduction: `reset` stores its start, `update` adds
    to what is there. `binds` gives a tensor's tile other strides than those of a whole array (te.decl_buffer), and
    `default_buffer_params` are arguments of decl_buffer for the others. `source` is LLVM IR of functions that the
    body calls; `architecture` and `features` say, by LLVM's names, which CPU can run it. Code of a GPU has the
    architecture `cuda`, the lowest that it runs on (`sm_80`) as feature, and CUDA C as source; as many neighbouring
    threads as there are `lanes` run it together, and tiles in their registers have a fragment (te.decl_buffer). A
    body or update that only begins its work names a `group`: its source then defines `<group>_commit()`, by which a
    thread closes a group of all that it has begun, and `<group>_wait<n>()`, which waits until at most n are under way.
    Calls of both are placed by the compiler, as late as dependences allow. `around` are two functions `void()` of the
    source that set up what the body needs on the CPU and give it back (tile registers): the compiler calls them before
    and after the body, once for as many runs of it as it can.

    Raises DefinitionError when the computation has no fixed size, or the statements do not fit it.

        >>> from tensorlang import te, topi
        >>> y = topi.multiply(te.placeholder((16,), name="x"), 2.0)
        >>> double = lambda ins, outs: outs[0].vstore([0], ins[0].vload([0], "float32x16") * 2.0)
        >>> te.decl_tensor_intrin(y.op, double, "double16").name
        'double16'
    """
    where, checked = caller(), check_tensor_name(name)
    if scalar_params:
        text = f"{checked}: scalar_params belong to calls of an intrinsic in a compute body; read a tensor of shape ()"
        raise DefinitionError(text, where)
    declared = _declared_program(op, checked, where)
    tensors = [*op.input_tensors, *(op.output(k) for k in range(op.num_outputs))]
    tiles = _tiles(tensors, dict(binds or {}), dict(default_buffer_params or {}), where)
    count = len(op.input_tensors)
    body, reset, update = _variants(fcompute(tiles[:count], tiles[count:]), checked, where)
    if (reset or update) and op.reduce_axis == ():
        raise DefinitionError(f"{checked} has no reduction; its fcompute returns one statement", where)
    if reset is not None and update is None:
        raise DefinitionError(f"{checked} has a reset, but no update that adds to what it stored", where)
    program, names = declared
    arrays = dict(zip(_buffer_names(program, names, tensors), tiles, strict=True))
    needs = tuple(sorted(features))
    intrin = TensorIntrin(
        checked, program, arrays, body, reset, update, architecture, needs, source, where, lanes, group, around
    )
    check_declaration(intrin)
    declare(intrin)
    return intrin


def declare(intrin: TensorIntrin) -> None:
    """Make an intrinsic known in this process, under its name and hash: one that another process has declared."""
    _DECLARED.setdefault(intrin.name, {})[intrin.key] = intrin


def intrin(name: str) -> TensorIntrin:
    """Return the intrinsic declared last under a name, or one of tensorlang's own (`x86.avx512.vpdpbusd`).

    >>> from tensorlang import te
    >>> te.intrin("x86.avx512.vpdpbusd").name
    'x86.avx512.vpdpbusd'
    """
    declared = _DECLARED.get(name) or _own(name)
    if not declared:
        raise DefinitionError(f"no intrinsic {name!r}; {_offered(name)}", caller())
    return list(declared.values())[-1]


def _offered(name: str) -> str:
    """The families of the intrinsics there are, by their first two words, and the names nearest to `name`."""
    known = sorted({*_DECLARED, *own_names()})
    words = [".".join(each.split(".")[:2]) for each in known]
    families = dict.fromkeys(family if family in known else f"{family}..." for family in words)
    near = get_close_matches(name, known, n=4)
    return f"there are {', '.join(families)}" + (f"; did you mean {' or '.join(near)}?" if near else "")


def find_intrin(name: str, key: str) -> TensorIntrin | None:
    """Return the declared intrinsic of a name and a hash."""
    found = _DECLARED.get(name, {}).get(key)
    return found or _own(name).get(key)


def declared_keys(name: str) -> list[str]:
    """The hashes of the intrinsics declared under a name."""
    return list(_DECLARED.get(name, {}))


def own_names() -> list[str]:
    """The names of tensorlang's own intrinsics."""
    return sorted(lookup(__name__, "OWN"))


def _own(name: str) -> dict[str, TensorIntrin]:
    """One of tensorlang's own intrinsics, declared when first used."""
    declare = lookup(__name__, "declarer")(name)
    if declare is None:
        return {}
    if name not in _DECLARED:
        declare()
    return _DECLARED[name]


def _declared_program(op: Operation, name: str, where: Location) -> tuple[Program, dict[int, str]]:
    if not isinstance(op, ComputeOp):
        raise DefinitionError(f"{name} needs the operation of a te.compute, got {type(op).__name__}", where)
    for source in op.input_tensors:
        if not isinstance(source.op, PlaceholderOp):
            raise DefinitionError(f"{name} must compute from placeholders, but {source.name} is computed itself", where)
    for axis in (*op.axis, *op.reduce_axis):
        if not isinstance(axis.extent, Const) or not isinstance(axis.lower, Const) or axis.lower.value:
            raise DefinitionError(f"axis {axis.name} of {name} must run from 0 to a number, got {axis}", where)
    return canonical([op])


def _tiles(
    tensors: list[Tensor], binds: dict[Tensor, TileBuffer], params: dict[str, Any], where: Location
) -> list[TileBuffer]:
    made: list[TileBuffer] = []
    for tensor in tensors:
        tile = binds.get(tensor) or decl_buffer(tensor.shape, tensor.dtype, tensor.op.name, **params)
        shape = tuple(int(e.value) for e in tensor.shape if isinstance(e, Const))
        if not isinstance(tile, TileBuffer) or tile.shape != shape or tile.dtype != tensor.dtype:
            text = f"the buffer of {tensor.name} must be {tensor.dtype}{list(shape)}, got {tile!r}; see te.decl_buffer"
            raise DefinitionError(text, where)
        made.append(replace(tile, name=unique(tile.name, {t.name for t in made})))
    return made


def _buffer_names(program: Program, names: Mapping[int, str], tensors: list[Tensor]) -> list[str]:
    """The names of tensors in the canonical program."""
    return [names[id(t.op)] if t.op.num_outputs == 1 else f"{names[id(t.op)]}.v{t.value_index}" for t in tensors]


def _variants(result: Any, name: str, where: Location) -> tuple[Stmt, Stmt | None, Stmt | None]:
    parts = list(result) if isinstance(result, tuple | list) else [result]
    if not 1 <= len(parts) <= 3 or parts[0] is None:
        raise DefinitionError(f"fcompute of {name} returns body, or (body, reset, update); got {result!r}", where)
    done = [_statement(p, name, where) for p in parts] + [None] * (3 - len(parts))
    assert done[0] is not None
    return done[0], done[1], done[2]


def _statement(part: Any, name: str, where: Location) -> Stmt | None:
    if part is None:
        return None
    if isinstance(part, Expr):
        return evaluate(part)
    if isinstance(part, Seq) and not part.body:
        raise DefinitionError(f"a body of {name} is empty", where)
    if not hasattr(part, "__dataclass_fields__"):
        raise DefinitionError(f"fcompute of {name} returns statements (tir.ir_builder), got {part!r}", where)
    statement: Stmt = part
    return statement
