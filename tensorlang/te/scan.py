"""te.scan: states over time, each computed from the states before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Const, Expr, Var, same, to_text
from tensorlang.ir.index import to_index
from tensorlang.ir.stmt import INDEX
from tensorlang.location import Location, caller
from tensorlang.te.check import check_tensor_name
from tensorlang.te.define import current_tag
from tensorlang.te.operation import ComputeOp, PlaceholderOp, Tensor
from tensorlang.te.time_steps import State, scan_operation


def scan(
    init: Tensor | Sequence[Tensor],
    update: Tensor | Sequence[Tensor],
    state_placeholder: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor] | None = None,
    name: str = "scan",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """Declare one or several states over time; the first axis of everything in a scan is time.

    `state_placeholder` has the shape (T, ...) of the result, `init` gives the first values (shape (k, ...)), and
    `update` (shape (T, ...)) those from time k on, reading the placeholder at earlier times. Every te.compute between
    the placeholders and the updates runs in each time step, and `inputs` are tensors that it reads. Returns the tensor,
    or one per state when lists are given. In a schedule, `s[update]` and the other stages of a time step are loops of
    the scan; `s[result].op.scan_axis` is the time axis.

        >>> from tensorlang import te
        >>> m, n = te.var("m"), te.var("n")
        >>> X = te.placeholder((m, n), name="X")
        >>> state = te.placeholder((m, n))
        >>> init = te.compute((1, n), lambda _, i: X[0, i])
        >>> update = te.compute((m, n), lambda t, i: state[t - 1, i] + X[t, i])
        >>> te.scan(init, update, state, inputs=[X], name="cumsum")
        Tensor(shape=[m, n], dtype=float32, name=cumsum)
    """
    where, checked = caller(), check_tensor_name(name)
    several = isinstance(init, list | tuple)
    groups = [
        _tensors(word, given, checked, where)
        for word, given in (
            ("init", init),
            ("update", update),
            ("state_placeholder", state_placeholder),
            ("inputs", inputs or ()),
        )
    ]
    if not groups[0] or len({len(g) for g in groups[:3]}) != 1:
        counts = ", ".join(str(len(g)) for g in groups[:3])
        raise DefinitionError(
            f"{checked} needs one init, one update and one placeholder per state, got {counts} of them", where
        )
    states = tuple(State(*parts) for parts in zip(*groups[:3], strict=True))
    _check_states(checked, states, where)
    op = scan_operation(checked, states, groups[3], current_tag(tag), dict(attrs or {}), where)
    made = [op.output(n) for n in range(op.num_outputs)]
    return made if several else made[0]


def _tensors(word: str, given: Any, name: str, where: Location) -> tuple[Tensor, ...]:
    several = tuple(given) if isinstance(given, list | tuple) else (given,)
    for tensor in several:
        if not isinstance(tensor, Tensor):
            raise DefinitionError(f"{word} of {name} must be tensors, got {tensor!r}", where)
    return several


def _check_states(name: str, states: Sequence[State], where: Location) -> None:
    """Refuse states whose parts do not fit together."""
    first = states[0]
    for s in states:
        if not isinstance(s.placeholder.op, PlaceholderOp):
            raise DefinitionError(f"the state of {name} must be a te.placeholder, got {s.placeholder!r}", where)
        if not isinstance(s.update.op, ComputeOp):
            raise DefinitionError(f"the update of {name} must be a te.compute, got {s.update!r}", where)
        if not s.placeholder.ndim:
            raise DefinitionError(f"the state {s.placeholder.name} of {name} has no time axis: it has no axes", where)
        if not _equal(s.update.shape, s.placeholder.shape):
            raise _misfit(name, "update", s.update, s.placeholder, s.placeholder.shape, where)
        if not _equal(s.init.shape[1:], s.placeholder.shape[1:]) or s.init.ndim != s.placeholder.ndim:
            wanted = (Var("k", INDEX), *s.placeholder.shape[1:])
            raise _misfit(name, "init", s.init, s.placeholder, wanted, where)
        types = {s.init.dtype, s.update.dtype, s.placeholder.dtype}
        if len(types) > 1:
            raise DefinitionError(
                f"{s.placeholder.name} is {s.placeholder.dtype}, its init {s.init.dtype} and its update "
                f"{s.update.dtype}; cast them to one dtype",
                where,
            )
        if not _equal(s.init.shape[:1], first.init.shape[:1]) or not _equal(s.update.shape[:1], first.update.shape[:1]):
            raise DefinitionError(
                f"the states of {name} have different numbers of time steps, or of first values", where
            )
    for part in ("update", "placeholder"):
        tensors = [getattr(s, part) for s in states]
        if len(set(tensors)) < len(tensors):
            raise DefinitionError(f"two states of {name} have one {part}; give each its own", where)
    k, steps = first.init.shape[0], first.update.shape[0]
    if isinstance(k, Const) and isinstance(steps, Const) and k.value > steps.value:
        raise DefinitionError(f"{name} has {k.value} first values for {steps.value} time steps", where)


def _equal(a: Sequence[Expr], b: Sequence[Expr]) -> bool:
    return len(a) == len(b) and all(same(to_index(x), to_index(y)) for x, y in zip(a, b, strict=True))


def _misfit(
    name: str, what: str, got: Tensor, state: Tensor, wanted: Sequence[Expr], where: Location
) -> DefinitionError:
    shape, needed = (f"({', '.join(map(to_text, s))})" for s in (got.shape, wanted))
    return DefinitionError(
        f"{what} {got.name} of {name} has shape {shape}; the state {state.name} needs {needed}", where
    )
