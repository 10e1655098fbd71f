"""What a notebook shows of tensors and programs."""

from __future__ import annotations

from collections.abc import Iterator

from tensorlang.ir.expr import to_text
from tensorlang.markup import code, page, table
from tensorlang.te.operation import ComputeOp, HybridOp, Operation, PlaceholderOp, Tensor
from tensorlang.te.program import Program, op_text, read_buffers

_LONGEST = 400


def tensor_html(tensor: Tensor) -> str:
    """Name, shape and dtype of a tensor, where it was declared, and as what."""
    op = tensor.op
    kind = "an input" if isinstance(op, PlaceholderOp) else "computed"
    rows = [
        ("shape", _shape(tensor)),
        ("dtype", tensor.dtype),
        ("is", f"{kind}, declared at {op.location}" if op.location else kind),
    ]
    if op.input_tensors:
        rows.append(("reads", ", ".join(f"{t.name}[{_shape(t)}]" for t in op.input_tensors)))
    values = [to_text(value) for value in op.body] if isinstance(op, ComputeOp) else []
    return page(f"Tensor {tensor.name}", table(("", ""), rows), *(code(_cut(text)) for text in values))


def program_html(program: Program) -> str:
    """Operations, producers first, with what they read and what they compute."""
    columns = ("operation", "kind", "shape", "dtype", "reads", "value")
    return page(f"Program of {', '.join(program.outputs)}", table(columns, (_row(program, op) for op in program.ops)))


def _row(program: Program, op: Operation) -> Iterator[str]:
    kind = "output" if op.name in program.outputs else "input" if isinstance(op, PlaceholderOp) else ""
    yield from (op.name, kind)
    shapes = [", ".join(map(to_text, b.shape)) for b in program.buffers.values() if program.producer[b.name] == op.name]
    yield from ("; ".join(shapes), ", ".join(dict.fromkeys(op.dtypes)), ", ".join(read_buffers(op)))
    match op:
        case ComputeOp():
            yield _cut("; ".join(map(to_text, op.body)))
        case HybridOp():
            yield _cut(op_text(op))
        case _:
            yield ""


def _shape(tensor: Tensor) -> str:
    return ", ".join(map(to_text, tensor.shape))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
