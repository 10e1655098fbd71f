"""Stages computed in other ways, as a target wants them: products, windows, attention, running reductions."""

from __future__ import annotations

from dataclasses import replace

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument
from tensorlang.schedule.primitive import Outputs, Primitive, StageName, named, positive, primitive
from tensorlang.schedule.primitives.storage import in_program_order
from tensorlang.schedule.rewrites.attention import attention_of, in_rounded_blocks
from tensorlang.schedule.rewrites.narrow_product import SUMS, narrow_factors, narrow_product
from tensorlang.schedule.rewrites.running import REDUCTIONS, in_pieces, running_of
from tensorlang.schedule.rewrites.windows_product import windows_of, windows_product
from tensorlang.schedule.state import ScheduleState, initial_stage
from tensorlang.te.declared import declared, exchanged
from tensorlang.te.operation import ComputeOp, HybridOp, Tensor


def _untouched(state: ScheduleState, stage: str) -> ComputeOp:
    """The operation of a compute stage as users declare it; BadArgument where its loops are no more as declared."""
    state.compute_op(stage)
    op = _first_step(state, stage)
    assert isinstance(op, ComputeOp)
    return op


def _first_step(state: ScheduleState, stage: str) -> ComputeOp | HybridOp:
    """The operation of any stage with loops, in the same way."""
    state.looped(stage)
    if state.stages[stage] != initial_stage(state.program[stage]) or state.attached_to(stage):
        raise BadArgument("", f"{stage} was scheduled already; a rewrite of what it computes must come first")
    op = declared(state.program, stage)
    assert isinstance(op, ComputeOp | HybridOp)
    return op


def _exchanged(state: ScheduleState, old: ComputeOp | HybridOp, new: Tensor) -> tuple[ScheduleState, Outputs]:
    """The state in which a stage is computed in other ways, and the names of the stages that this made.

    BadArgument where a stage that nobody reads any more was scheduled already.
    """
    program = exchanged(state.program, old, new.op)
    own = {op.name for op in state.program.ops}
    kept = {op.name for op in program.ops if state.program.by_name.get(op.name) is op}
    for name in own - kept:
        _first_step(state, name)
    stages = in_program_order(program, {name: s for name, s in state.stages.items() if name in kept})
    made = tuple(op.name for op in program.ops if op.name not in kept and op.name != old.name)
    return replace(state, program=program, stages=stages), made


@primitive("narrow_product")
@dataclass(frozen=True, slots=True)
class NarrowProduct(Primitive):
    """Compute a product of matrices of narrow numbers by whole words of 32 bits, as dot instructions multiply them.

    Columns of B are laid out in panels of `width`, in which neighbouring terms fill a word; rows of A are filled up to
    whole words. Signed bytes that the instruction multiplies as unsigned (`data="uint8"`) are moved up by 128, and 128
    times the sums of the columns of B is subtracted. Panels and words are filled up with zeros.
    Rewrite: `C[i, j] += A[i, k] * B[k, j]` -> `P[p, u, l, t] = B[g * u + t, w * p + l]; S[i, p, l] += A[i, k] *
    P[p, k // g, l, k % g]; C[i, j] = S[i, j // w, j % w]`.
    Legal when: the stage is a product of two whole matrices, each as it is or transposed, of bfloat16 in float32, or of
    int8 or uint8 by int8 in int32, where sums wrap around; it was not scheduled yet.
    Example:
        >>> from tensorlang import te, topi
        >>> A, B = te.placeholder((20, 30), "int8", "A"), te.placeholder((30, 40), "int8", "B")
        >>> C = topi.matmul(A, B, out_dtype="int32")
        >>> s = te.create_schedule(C.op)
        >>> s[C].narrow_product(width=16, data="uint8")
        ('C_rows', 'C_packed_whole', 'C_packed', 'C_sums', 'C_offsets_zero', 'C_offsets')
    """

    stage: StageName
    width: int = named()
    data: str = named()

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        width, op = positive(self.width, state, "width"), _untouched(state, self.stage)
        factors = narrow_factors(op)
        if factors is None:
            pairs = ", ".join(f"{a} by {b} in {sums}" for (a, b), sums in SUMS.items())
            raise BadArgument("", f"{self.stage} is no product of two whole matrices of narrow numbers ({pairs})")
        own = factors.a.dtype
        possible = (own, "uint8") if own == "int8" else (own,)
        if self.data not in possible:
            raise BadArgument("", f"rows of {own} are multiplied as {' or '.join(possible)}, got data={self.data!r}")
        return _exchanged(state, op, narrow_product(factors, width, self.data, op.name))


@primitive("windows_product")
@dataclass(frozen=True, slots=True)
class WindowsProduct(Primitive):
    """Compute a convolution as a product of matrices: a row for each window of the data, the weights as columns.

    `rows` are the axes that count windows, and `terms` those of the sum, each counted through in this order. The stages
    of windows and filters lie in no memory where a tile of them is computed at a time: the implicit form of the
    product. Of several `groups` of columns, each has windows of its own. Padding is zeros that are multiplied: under an
    infinite weight they make NaN, which the sum without them is not.
    Rewrite: `C[x, f] += D[x * s + r, c] * W[r, c, f] where inside` -> `V[x, k] = D[...] if inside else 0; U[k, f] =
    W[...]; P[x, f] += V[x, k] * U[k, f]; C[x, f] = P[x, f]`, k for r and c.
    Legal when: the stage is a sum of products of two elements, one of which moves with rows, terms and groups, the
    other with columns and terms; the schedule is not strict where floats are padded; the stage was not scheduled yet.
    Example:
        >>> from tensorlang import te, topi
        >>> D, W = te.placeholder((1, 6, 6, 16), "float16", "D"), te.placeholder((3, 3, 16, 32), "float16", "W")
        >>> C = topi.conv2d(D, W, data_layout="NHWC", out_dtype="float32", name="C")
        >>> s = te.create_schedule(C.op)
        >>> s[C].windows_product(["nn", "yy", "xx"], ["ry", "rx", "rc"])
        ('C_windows', 'C_filters', 'C_product')
    """

    stage: StageName
    rows: tuple[str, ...]
    terms: tuple[str, ...]
    groups: int = 1

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        op = _untouched(state, self.stage)
        found = windows_of(op, self.rows, self.terms, positive(self.groups, state, "groups"))
        if isinstance(found, str):
            raise BadArgument("", f"windows_product wants: {found}")
        if state.strict and found.where is not None and dtypes.info(op.dtype).is_float:
            raise BadArgument(
                "",
                f"windows_product multiplies the padding of {self.stage}, which is no number under an infinite weight, "
                "and the schedule is strict",
                suggested=["te.create_schedule(..., strict=False)"],
            )
        return _exchanged(state, op, windows_product(found, op.name))


@primitive("blocked_attention")
@dataclass(frozen=True, slots=True)
class BlockedAttention(Primitive):
    """Compute an attention in blocks of `keys` and of `rows` of queries, filled up with zeros, as tensor cores want it.

    What the blocks of keys give is merged (the online softmax), and weights are rounded to the dtype of the values. A
    key that a query does not see has the score minus infinity, so that no sum has a condition: in a block of which a
    query sees some, a value that is infinite or not a number reaches this query even if it does not see it.
    Rewrite: `O[i] = softmax(Q[i] @ K.T) @ V` -> `for b: S = Q[i] @ K[b].T; W = 2 ** (S - max S); merge (max S, sum W,
    rounded(W) @ V[b]); O[i] = merged`.
    Legal when: the stage is the output of topi.attention, of which nothing was scheduled yet, nor read by others; the
    schedule is not strict.
    Example:
        >>> from tensorlang import te, topi
        >>> q, k, v = (te.placeholder((2, 100, 16), "float16", name) for name in "qkv")
        >>> C = topi.attention(q, k, v, name="C")
        >>> s = te.create_schedule(C.op)
        >>> s[C].blocked_attention(keys=64, rows=64)[:2]
        ('C_queries', 'C_keys')
    """

    stage: StageName
    keys: int = named()
    rows: int = named()

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        keys, rows = positive(self.keys, state, "keys"), positive(self.rows, state, "rows")
        op = _untouched(state, self.stage)
        asked = attention_of(op)
        if asked is None:
            raise BadArgument("", f"{self.stage} is no output of topi.attention")
        if state.strict:
            raise BadArgument(
                "",
                f"blocked_attention rounds weights of {self.stage} and sums them in another order, and the schedule is "
                "strict",
                suggested=["te.create_schedule(..., strict=False)"],
            )
        return _exchanged(state, op, in_rounded_blocks(asked, keys, rows))


@primitive("running_pieces")
@dataclass(frozen=True, slots=True)
class RunningPieces(Primitive):
    """Compute a running reduction in pieces of `size`: several threads make one row (reduce, then scan).

    The reductions of pieces need not wait for each other, nor do the elements of different pieces, once the pieces are
    reduced up to each; that is a running reduction again.
    Rewrite: `C[i] = C[i - 1] + f(i)` -> `P[o] += f(size * o + k); T[o] = T[o - 1] + P[o]; C[size * o + k] = (T[o - 1]
    if k == 0 else C[size * o + k - 1]) + f(size * o + k)`.
    Legal when: the stage is a te.recurrence of one value, `te.if_then_else(i > 0, self[..., i - 1, ...] + f, first)`,
    where neither f nor `first` reads it, of +, *, min, max, and, or; the schedule is not strict, for floats; the stage
    was not scheduled yet.
    Example:
        >>> from tensorlang import te, topi
        >>> A = te.placeholder((8, 1000), name="A")
        >>> C = topi.cumsum(A, axis=1, name="C")
        >>> s = te.create_schedule(C.op)
        >>> s[C].running_pieces("i1", size=32)
        ('C_pieces', 'C_totals')
    """

    stage: StageName
    axis: str
    size: int = named()

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        size, op = positive(self.size, state, "size"), _first_step(state, self.stage)
        running = running_of(op, self.axis) if isinstance(op, HybridOp) else None
        if running is None:
            known = ", ".join(REDUCTIONS)
            why = f"{self.stage} is no recurrence of one value along {self.axis} by one of {known}"
            raise BadArgument("", why)
        is_float = dtypes.info(op.dtype).is_float
        if state.strict and is_float:
            raise BadArgument(
                "",
                f"running_pieces adds up pieces of {self.stage} first, another order of its floating-point updates, "
                "and the schedule is strict",
                suggested=["te.create_schedule(..., strict=False)"],
            )
        made, names = _exchanged(state, op, in_pieces(running, size, op.name))
        changed = (self.stage,) if is_float else ()
        return replace(made, reassociated=(*made.reassociated, *changed)), names
