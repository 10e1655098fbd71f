"""Schedules of whole programs: a tuned record where there is one, else the forms that the program's groups have."""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang.driver import try_lowering
from tensorlang.schedule import Schedule, create_schedule
from tensorlang.schedule.history import best_if_any
from tensorlang.schedules.default import apply_forms
from tensorlang.target import parse
from tensorlang.target.spec import Target
from tensorlang.te.operation import Tensor
from tensorlang.topi.checked import checked


@checked
def schedule(outputs: Tensor | Sequence[Tensor], target: str | Target | None = None, *, tuned: bool = True) -> Schedule:
    """Return a schedule for a program made of the library's operators, of te.compute and te.hybrid of your own.

    Both are told by what they access (docs/design/026-forms.md): reductions that use elements several times get
    register tiles and packed operands, others vectors of partial results, chains over rows one pass a row. Elementwise
    stages that follow (bias, activation, residual) are computed in their tile; others are inlined into their readers,
    unless a sum would then compute them again and again; and what is left gets parallel outer and vectorized inner
    loops. `target` gives vector width, caches and cores: this machine's by default. For a GPU (`"cuda"`, `"opencl"`)
    loops are bound to blocks and threads, by forms of their own (docs/design/022-gpu-operators.md); what has none there
    is computed by a thread for each element. `s.explain()` tells which form each stage has, and what was left as
    declared, and why, and what would still make the kernel slow.

    The rules give way to a tuned record of this program, or of its main group, for this target and number of threads,
    if there is one where records are in use (`autotune.apply_history_best`) or in the default store: the `origin` of
    the schedule names it. It is proven legal again and lowered, and skipped with a warning if it is not, or cannot
    be. `tuned=False` takes the rules in any case.

    Example:
        A, B = te.placeholder((64, 64), name="A"), te.placeholder((64, 64), name="B")
        s = topi.schedule(te.compute((64, 64), lambda i, j: te.max(topi.matmul(A, B)[i, j], 0.0), name="relu"))

        >>> from tensorlang import te, topi
        >>> A, B = te.placeholder((64, 64), name="A"), te.placeholder((64, 64), name="B")
        >>> C = topi.relu(topi.matmul(A, B))
        >>> s = topi.schedule(C, "llvm -mcpu=haswell -num-cores=1")
        >>> len(str(s).splitlines()) > 5
        True
    """
    wanted = list(outputs) if isinstance(outputs, Sequence) else [outputs]
    machine = parse(target)
    s = create_schedule(wanted)
    known = best_if_any(s, machine, "topi.schedule", lambda made: try_lowering(made, machine)) if tuned else None
    if known is None:
        apply_forms(s, machine)
    made = known or s
    made.target = machine
    return made
