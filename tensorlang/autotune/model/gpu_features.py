"""Features of candidates on a GPU for the learned model: blocks, occupancy, tiles and traffic, one row each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tensorlang.autotune.model.estimate import Estimate
from tensorlang.autotune.model.features import heaviest
from tensorlang.autotune.model.gpu_blocks import Blocks, kernels, trips
from tensorlang.autotune.model.gpu_estimate import GPU_TERMS, SECTOR, gpu_estimate, sectors, shared_bytes
from tensorlang.autotune.model.gpu_machine import GpuMachine
from tensorlang.autotune.model.nest import Kind, Loop, Nest, stack
from tensorlang.ir.thread_tags import TAGS
from tensorlang.schedules.accesses import Access, Array, footprint
from tensorlang.target.spec import Target

ACCESSES = 3
_KINDS = (Kind.SERIAL, Kind.UNROLLED, Kind.VECTORIZED)

Columns = dict[str, Array]


def gpu_features(nests: Sequence[Nest], guess: Estimate, machine: GpuMachine) -> npt.NDArray[np.float32]:
    """Return one row of features per candidate; the estimate is one of them. See `gpu_feature_names`."""
    return stack(list(_columns(nests, guess, machine).values()))


def gpu_feature_names() -> tuple[str, ...]:
    """What the columns of a row are, in order."""
    nest = Nest((), (Access("Y", 4, (), (), write=True),), {}, frozenset(), 1.0, 32, 1, local=False)
    machine = GpuMachine.of(Target("cuda"))
    return tuple(_columns((nest,), gpu_estimate((nest,), machine), machine))


def _columns(nests: Sequence[Nest], guess: Estimate, machine: GpuMachine) -> Columns:
    main = nests[heaviest(nests)]
    known = kernels(nests, machine)
    found = {"estimate": _log(guess.seconds)}
    found |= {f"term {name}": _log(guess.terms[name] * 1e9) for name in GPU_TERMS}
    own = sum((s for n, s in zip(nests, guess.stages, strict=True) if n.host == main.host), 0 * guess.seconds)
    found |= {"kernels": np.full(main.count, float(len(known))), "share of other kernels": 1 - own / guess.seconds}
    parts = [nest for nest in nests if nest.host == main.host]
    return found | _block_features(known[main.host]) | _loop_features(main, parts) | _traffic(main, parts, machine)


def _log(values: Array) -> Array:
    return np.asarray(np.log2(np.maximum(values, 1e-30)))


def _block_features(blocks: Blocks) -> Columns:
    return {
        "blocks": _log(blocks.blocks),
        "threads": _log(blocks.threads),
        "shared bytes": _log(blocks.shared + 1),
        "registers": blocks.registers,
        "resident blocks": blocks.resident,
        "busy": blocks.busy,
        "warps": blocks.warps,
    }


def _loop_features(main: Nest, parts: Sequence[Nest]) -> Columns:
    """Trips of the loops around the heaviest stage, by what runs them, and how its kernel fetches."""
    found = {f"{tag} trips": _log(_of(main, lambda p, tag=tag: p.thread == tag)) for tag in TAGS}
    for kind in _KINDS:
        found[f"{kind.value} trips"] = _log(_of(main, lambda p, kind=kind: p.kind is kind and not p.thread))
    staged = [nest for nest in parts if nest.scope == "shared"]
    one = np.ones(main.count)
    widths = [_of(nest, lambda p: p.kind is Kind.VECTORIZED) for nest in staged]
    return found | {
        "staged arrays": one * len(staged),
        "register copies": one * sum(nest.scope == "local" and nest.operations <= 1 for nest in parts),
        "tiles at once": np.max([one * nest.copies for nest in staged], axis=0) if staged else one,
        "narrowest fetch": np.min(widths, axis=0) if widths else 0 * one,
        "widest fetch": np.max(widths, axis=0) if widths else 0 * one,
        "stored vector": _of(next((n for n in parts if n.host == n.output.buffer), main), _is_vector),
    }


def _is_vector(loop: Loop) -> bool:
    return loop.kind is Kind.VECTORIZED


def _of(nest: Nest, chosen: object) -> Array:
    assert callable(chosen)
    return trips([loop for loop in nest.loops if chosen(loop)], nest.count)


def _traffic(main: Nest, parts: Sequence[Nest], machine: GpuMachine) -> Columns:
    """Per array of the heaviest stage: what a block and a thread touch of it, and how often each element is used."""
    warp, zero = machine.limits.warp, np.zeros(main.count)
    found: Columns = {}
    places = [n for n, loop in enumerate(main.loops) if loop.is_block or loop.is_thread]
    block = max((n + 1 for n, loop in enumerate(main.loops) if loop.is_block), default=0)
    thread = max((n + 1 for n in places), default=0)
    tiles = main.tiles()
    reads = sorted(main.accesses, key=lambda a: not a.write)[:ACCESSES]
    for n in range(ACCESSES):
        if n >= len(reads):
            found |= {f"array {n} {what}": zero for what in ("block", "thread", "sectors", "shared")}
            continue
        access = reads[n]
        found[f"array {n} block"] = _log(footprint(access, tiles[block], main.count).elements * access.itemsize)
        found[f"array {n} thread"] = _log(footprint(access, tiles[thread], main.count).elements)
        found[f"array {n} sectors"] = _log(sectors(main, access, warp) * SECTOR)
        found[f"array {n} shared"] = _log(shared_bytes(main, access, warp))
    copied = [sectors(nest, a, warp) for nest in parts if nest.scope == "shared" for a in nest.accesses if not a.write]
    return found | {"sectors fetched": _log(sum(copied, zero) + 1)}
