"""Numbers that are rounded to bytes, and read as floats in the same kernel, stay the floats that these bytes would be.

Models with QDQ nodes round what goes into a residual sum, and then the sum. A byte is a float that was rounded and kept
between two whole numbers: the result is the same for all numbers.
"""

from __future__ import annotations

from dataclasses import replace

from tensorlang.ir import intrinsics
from tensorlang.ir.clamped import clamped
from tensorlang.ir.expr import Binary, Cast, Const, Expr, Load, Var, binary, const, rewrite, substitute
from tensorlang.te.operation import ComputeOp, Operation, at_own_place, loads
from tensorlang.te.program import Program


def without_bytes_between(program: Program) -> Program:
    """The program without bytes that one stage alone reads, as floats, to add to them what others made before.

    Where both summands are such bytes, the kernel of the sum that comes first adds them (`groups_of`): the other one is
    made in a kernel of its own, and stays what it is.
    """
    meant = {reader: name for name in program.by_name if (reader := _reader(program, name)) is not None}
    changed: dict[str, Operation] = {}
    gone: set[str] = set()
    for reader, name in meant.items():
        last = only_reader(program, reader)
        summands = [] if last is None else [load.buffer.name for load in loads(last) if load.buffer.name in meant]
        if not summands or min(summands, key=lambda summand: _begun(program, summand)) != reader:
            continue
        made = _floats(program, name, reader)
        if made is not None:
            changed[reader] = made
            gone.add(name)
    return replace(program, ops=tuple(changed.get(op.name, op) for op in program.ops if op.name not in gone))


def _begun(program: Program, name: str) -> int:
    """The place in the program of the sum that an array is made of, element by element."""
    op = program[name]
    while is_plain(op):
        before = {program.producer[load.buffer.name] for load in loads(op)}
        made = [one for one in before if isinstance(program[one], ComputeOp)]
        if len(made) != 1:
            break
        op = program[made[0]]
    return program.ops.index(op)


def _reader(program: Program, name: str) -> str | None:
    """The stage that alone reads the bytes of a stage."""
    op = program[name]
    if not is_plain(op) or not isinstance(op, ComputeOp) or op.dtype not in ("int8", "uint8"):
        return None
    reader = only_reader(program, name)
    return reader.name if reader is not None and reader.dtype == "float32" else None


def only_reader(program: Program, name: str) -> ComputeOp | None:
    """The only stage that reads another, each element at its own place."""
    readers = program.consumers[name]
    if len(readers) != 1 or name in program.outputs:
        return None
    op = program[readers[0]]
    if not isinstance(op, ComputeOp) or not is_plain(op):
        return None
    reads = [load for load in loads(op) if load.buffer.name == name]
    return op if len(reads) == 1 and at_own_place(op, reads[0]) else None


def is_plain(op: Operation) -> bool:
    return isinstance(op, ComputeOp) and not op.reduce_axes and not op.where and len(op.body) == 1 and not op.tag


def _floats(program: Program, name: str, reader: str) -> ComputeOp | None:
    """The reader of bytes, with what they are made of in their place; None where these are not rounded so."""
    made, op = program[name], program[reader]
    assert isinstance(made, ComputeOp) and isinstance(op, ComputeOp)
    byte = made.body[0]
    found = clamped(byte) if isinstance(byte, Cast) else None
    if found is None or not found.rounds or found.inner.dtype != "float32":
        return None
    number, zero = intrinsics.call("round", found.inner), found.zero
    names = {a.name: Var(b.name) for a, b in zip(made.axes, op.axes, strict=True)}

    def meant(less: int) -> Expr:
        """The bytes, less a whole number."""
        low, high = (const(end - zero, "float32") for end in (found.low, found.high))
        kept = binary("max", binary("min", substitute(number, names), high), low)
        return kept if less == zero else kept + const(zero - less, "float32")

    def rule(node: Expr) -> Expr | None:
        match node:
            case Cast(value=Cast(value=Load(buffer=buffer), dtype="int32"), dtype="float32") if buffer.name == name:
                return meant(0)
            case Cast(
                value=Binary(op="sub", a=Cast(value=Load(buffer=buffer), dtype="int32"), b=Const(value=less)),
                dtype="float32",
            ) if buffer.name == name:
                return meant(int(less))
        return None

    new = replace(op, body=(rewrite(op.body[0], rule),))
    return None if any(load.buffer.name == name for load in loads(new)) else new
