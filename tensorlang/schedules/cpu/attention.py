"""The schedule of attention: for some rows of queries at a time, all scores, their softmax, and the mixed values.

The scores of these rows stay in the L2 cache: those of all keys, or of one block of keys after the other, where what a
block gives is merged into the triples of these rows. Both products run in register tiles, over keys that are packed
once per head in panels.
"""

from __future__ import annotations

from dataclasses import replace

from tensorlang import dtypes, te
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Buffer, Expr, variables
from tensorlang.schedule import Schedule
from tensorlang.schedule.rewrites.attention import is_whole, last_seen
from tensorlang.schedules.anchor import Anchor
from tensorlang.schedules.candidates import ROWS, around, up_to
from tensorlang.schedules.cpu.few_queries import are_few, schedule_few
from tensorlang.schedules.cpu.points import GRAIN
from tensorlang.schedules.cpu.register_tile import MANY, RegisterTile, register_tile
from tensorlang.schedules.cpu.rows import fused
from tensorlang.schedules.cpu.weighing import CHAINS, EACH, weigh_inside
from tensorlang.schedules.room import Room
from tensorlang.target.spec import Target
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import ComputeOp, loads
from tensorlang.te.tags import (
    CACHED,
    CAUSAL,
    KEYS,
    MERGED,
    MIXED,
    QUERIES,
    ROUNDED,
    SCALED,
    SCORE,
    VALUES,
    WEIGHT,
)

TENSOR_CORE_KEYS = 64
"""Keys of a block on tensor cores: their scores and weights are 32 + 16 registers of each thread."""
TENSOR_CORE_ROWS, TENSOR_CORE_WIDTH = 16, 16
"""Queries of a tile of tensor cores, and what extents of queries and values are multiples of."""
_TILES = 4
"""Register tiles of rows that share the keys and values that they read, at most."""
_ROWS = 8
"""Rows of a register tile, at most: a divisor of most numbers of tokens."""
_MOST_KEYS = 2048
"""Keys of which a row keeps all scores; with more, blocks are faster, and need memory that does not grow."""
_BLOCK, _EVEN = 512, 32
"""Keys of a block, about; a multiple of so many, which fill panels."""
_LINE, _PAGE = 64, 2048
"""Rows of scores are a multiple of so many bytes and a line long: at a multiple alone they would share cache sets."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The register tiles of both products, and the rows of queries that are computed together."""

    scores: RegisterTile
    mixing: RegisterTile
    rows: int


def query_tile(n: int | None) -> int:
    """Queries of a block on tensor cores: 16 for each of up to four warps."""
    return TENSOR_CORE_ROWS * (4 if n is None else max(1, min(4, -(-n // TENSOR_CORE_ROWS))))


def plan_of(n: int | None, m: int | None, width: int | None, bits: int, target: Target) -> Plan:
    """Choose tiles; the scores and weights of the rows fill a quarter of the L2 cache at most."""
    rows = n or MANY
    scores = register_tile(rows, m or MANY, target, bits, most_rows=_ROWS)
    mixing = _mixing_tile(scores.rows, width or MANY, target, bits)
    held = 2 * (m or MANY) * bits // 8 * scores.rows
    fitting = target.second_cache // 4 // held
    return Plan(scores, mixing, scores.rows * max(1, min(_TILES, fitting, rows // scores.rows)))


def _mixing_tile(rows: int, width: int, target: Target, bits: int) -> RegisterTile:
    """The tile of the second product: its rows divide those of a tile of scores, so that blocks have no rest."""
    lanes = target.lanes(bits)
    needed = -(-width // lanes)
    registers = target.vector_registers
    tiles = [
        (r, v) for r in range(1, rows + 1) for v in range(1, needed + 1) if rows % r == 0 and r * v + v + 1 <= registers
    ]

    def cost(tile: tuple[int, int]) -> tuple[float, float]:
        r, v = tile
        times = -(-needed // v)
        return times * max(r * v, CHAINS) / r, times * (r + v) / r

    r, v = min(tiles, key=cost)
    return RegisterTile(r, v, v * lanes)


def key_block(m: int | None) -> int | None:
    """Keys of a block; None where all scores of some queries are kept. Blocks are nearly equal."""
    if m is None:
        return _BLOCK
    if m <= _MOST_KEYS:
        return None
    blocks = -(-m // _BLOCK)
    return -(-m // (blocks * _EVEN)) * _EVEN


def parts_of(s: Schedule, main: str) -> list[str]:
    """The parts behind an operator's stage, in program order."""
    program, found = s.program, {main}
    for candidate in reversed(program.ops):
        is_part = isinstance(candidate, ComputeOp) and candidate.tag.startswith(f"{_tag(s, main)}.")
        if is_part and found & set(program.consumers[candidate.name]):
            found.add(candidate.name)
    return [op.name for op in program.ops if op.name in found - {main}]


def schedule_attention(room: Room, anchor: Anchor) -> None:
    """Rows of queries outside, in parallel; inside them one part after the other, for one block of keys at a time."""
    s = room.s
    tag = _tag(s, anchor.main)
    part = {_tag(s, name).removeprefix(tag): name for name in parts_of(s, anchor.main)}
    bits = dtypes.info(s.program.buffers[part[SCORE]].dtype).bits
    for word in (w for w in (QUERIES, VALUES, ROUNDED) if w in part):
        s[part[word]].compute_inline()
    n, kept = (extent_of(s.program[part[SCALED]].axis[d].extent) for d in (-2, -1))
    keys = keys_read(s, part)
    if are_few(n, extent_of(keys.shape[-1]), anchor.target.lanes(bits)):
        schedule_few(room, anchor, part, keys, bits)
        return
    width = extent_of(s.program[anchor.main].axis[-1].extent)
    plan = _decide(room, plan_of(n, kept, width, bits, anchor.target), n or MANY, bits)
    if anchor.main != anchor.output:
        s[anchor.main].compute_inline()
    heads, block, tile = _output_loops(s, anchor.output, plan)
    host, loop = anchor.output, block
    if MERGED in part:
        host, (loop, tile) = part[MERGED], _merge_loops(s, part[MERGED], plan)
        s[host].compute_at(s[anchor.output], block)
        s[host].set_scope("local")
    _register_product(s, part[MIXED], host, tile)
    lanes = anchor.target.lanes(bits)
    weigh_inside(s, part, host, loop, lanes)
    for word in (SCALED, WEIGHT):
        s[part[word]].storage_align(s[part[word]].op.axis[-2], _PAGE * 8 // bits, _LINE * 8 // bits)
    main = s.original[anchor.main]
    is_masked = ROUNDED in part  # scores and weights of all keys are read
    has_rest = KEYS in part and tag != CACHED and not is_masked and not is_whole(keys.shape[-2], kept)
    is_causal = isinstance(main, ComputeOp) and bool(main.attrs.get(CAUSAL)) and not is_masked
    _leave_out_unseen(s, part, plan, has_rest, is_causal)
    _register_product(s, part[SCORE], part[SCALED], _score_loops(s, part[SCALED], plan))
    _pack_keys(s, part, plan, has_rest, anchor.output, heads)
    work = (n or MANY) * (extent_of(keys.shape[-2]) or MANY)
    if anchor.target.cores > 1 and work >= GRAIN // 8:
        s[anchor.output].parallel(heads if heads and _are_many(s, anchor, heads) else block)


def _decide(room: Room, plan: Plan, queries: int, bits: int) -> Plan:
    """The sizes of an attention: in an open room, candidates around those of the plan. Panels of keys stay as wide."""

    def tile(name: str, usual: RegisterTile) -> RegisterTile:
        vectors = -(-usual.width // room.target.lanes(bits))
        fitting = (room.target.vector_registers - 1) // vectors - 1
        return replace(usual, rows=room.choose(name, up_to(ROWS, min(queries, fitting)), usual.rows))

    together = room.choose("together", around(plan.rows, queries), plan.rows)
    return Plan(tile("rows", plan.scores), tile("mixed", plan.mixing), together)


def _are_many(s: Schedule, anchor: Anchor, heads: str) -> bool:
    """Whether threads get about equally many heads; if not, they share the queries of each."""
    count, cores = extent_of(s.state.axis(anchor.output, heads).extent), anchor.target.cores
    return count is None or count % cores == 0 or count >= EACH * cores


def _merge_loops(s: Schedule, merged: str, plan: Plan) -> tuple[str, str]:
    """The loops over blocks of keys and over register tiles of the triples of some queries."""
    stage = s[merged]
    *outer, i, d = stage.op.axis
    (b,) = stage.op.reduce_axis
    down, i = stage.split(i, factor=plan.mixing.rows, tail="peel")
    across, d = stage.split(d, factor=plan.mixing.width, tail="peel")
    stage.reorder(*outer, b, down, across, i, d)
    stage.unroll(i)
    stage.vectorize(d)
    return b.name, across.name


def _leave_out_unseen(s: Schedule, part: dict[str, str], plan: Plan, has_rest: bool, is_causal: bool) -> None:
    """Compute no score and no weight beyond the last key that is looked at, but whole panels of scores."""
    m = keys_read(s, part).shape[-2]
    for word, panel in ((SCORE, plan.scores.width), (SCALED, plan.scores.width), (WEIGHT, 1)):
        op = s.program[part[word]]
        assert isinstance(op, ComputeOp)
        *_, i, j = op.axes
        first = te.floordiv(j.as_expr(), panel) * panel if panel > 1 else j.as_expr()
        if KEYS in part:
            first += op.axes[-3].as_expr() * j.extent
        if has_rest:
            s[part[word]].set_store_predicate(first < m)
        if is_causal and word != SCORE:
            s[part[word]].set_store_predicate(first <= last_seen(i.as_expr(), i.extent, m))


def _tag(s: Schedule, name: str) -> str:
    op = s.program[name]
    assert isinstance(op, ComputeOp)
    return op.tag


def _output_loops(s: Schedule, output: str, plan: Plan) -> tuple[str, str, str]:
    """The loops over heads (fused; none without), over blocks of rows and over register tiles of the output."""
    out = s[output]
    *outer, i, d = out.op.axis
    block, i = out.split(i, factor=plan.rows, tail="peel")
    down, i = out.split(i, factor=plan.mixing.rows, tail="peel")
    across, d = out.split(d, factor=plan.mixing.width, tail="peel")
    out.reorder(*outer, block, down, across, i, d)
    out.unroll(i)
    out.vectorize(d)
    heads = fused(out, [axis.name for axis in outer]) if outer else ""
    return heads, block.name, across.name


def _score_loops(s: Schedule, scaled: str, plan: Plan) -> str:
    """The loops of the scores of a block: panels of keys outside; the loop over register tiles."""
    stage = s[scaled]
    *_, i, j = stage.op.axis
    panel, j = stage.split(j, factor=plan.scores.width, tail="peel")
    down, i = stage.split(i, factor=plan.scores.rows, tail="peel")
    stage.reorder(panel, down, i, j)
    stage.unroll(i)
    stage.vectorize(j)
    return down.name


def _register_product(s: Schedule, product: str, host: str, tile: str) -> None:
    """Sum a tile of a product in registers."""
    stage = s[product]
    stage.compute_at(s[host], tile)
    stage.set_scope("local")
    (k,) = stage.op.reduce_axis
    *_, i, j = stage.op.axis
    stage.reorder(k, i, j)
    stage.unroll(i)
    stage.vectorize(j)


def _pack_keys(s: Schedule, part: dict[str, str], plan: Plan, has_rest: bool, output: str, heads: str) -> None:
    """Lay the keys of a head out in panels as wide as a register tile, depth inside."""
    panel, keys = plan.scores.width, keys_read(s, part)
    packed = s[s.cache_read(part.get(KEYS, keys.name), "global", [part[SCORE]])]

    def in_panels(*index: Expr) -> list[Expr]:
        *outer, j, c = index
        return [*outer, j // panel, c, j % panel]

    *outer, number, depth, lane = packed.transform_layout(in_panels)
    packed.reorder(number, lane, depth)
    packed.vectorize(lane)
    if has_rest:
        first = number.as_expr() * panel + outer[-1].as_expr() * s.program[part[KEYS]].axis[-2].extent
        packed.set_store_predicate(first < keys.shape[-2])
        s[part[KEYS]].compute_at(packed, number)
        s[part[KEYS]].set_scope("local")
        s[part[KEYS]].vectorize(s[part[KEYS]].op.axis[-1])
    elif KEYS in part:
        s[part[KEYS]].compute_inline()
    if heads:
        packed.compute_at(s[output], heads)


def keys_read(s: Schedule, part: dict[str, str]) -> Buffer:
    """The array of all keys."""
    op = s.program[part.get(KEYS, part[SCORE])]
    assert isinstance(op, ComputeOp)
    if KEYS in part:  # a copy of them in blocks; what its indices read comes behind
        return loads(op)[0].buffer
    column = op.axes[-1].name
    return next(load.buffer for load in loads(op) if column in variables(load.index[-2]))
