"""Which new arrays of a hybrid operation must begin as zeros: those with an element that may be read unwritten."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from tensorlang import config
from tensorlang.ir.expr import Buffer
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer, conditions_text, dims, index_text, is_visible
from tensorlang.polyhedral.ordered import Source, sources
from tensorlang.polyhedral.written import readings, unwritten
from tensorlang.te.operation import HybridOp
from tensorlang.te.program import local_arrays


@lru_cache(maxsize=512)
def begins_as_zeros(op: HybridOp, sizes: frozenset[str]) -> frozenset[str]:
    """Return the new arrays whose first contents may be seen, by the operation itself or (outputs) by others.

    Only stores count whose condition and element isl sees. Scalars are always assigned first.
    """
    fresh = {b.name: b for b, old in zip(op.outputs, op.updates, strict=True) if old is None}
    local = {b.name: b for b in local_arrays(op) if b.shape}
    found = list(sources(op).values())
    certain = [s for s in found if _is_certain(s, sizes)]
    try:
        with isl.budget(config.get("budget")):
            seen = {name for name, b in fresh.items() if not _is_covered(b, certain, sizes)}
            for reading in (r for source in found for r in readings(source)):
                name = reading.load.buffer.name
                if name in seen or (name not in fresh and name not in local):
                    continue
                if reading.is_visible(sizes):
                    early = unwritten(reading, certain, Namer(sizes)) is not None
                else:
                    early = name in local or not _is_covered(fresh[name], certain, sizes)
                if early:
                    seen.add(name)
    except isl.BudgetExceeded:
        return frozenset({*fresh, *local})
    return frozenset(seen)


def _is_certain(source: Source, sizes: frozenset[str]) -> bool:
    """Whether a store runs, and where it stores, is known from the loops alone."""
    return is_visible(dims(source.axes), Namer(sizes), source.domain, source.store.index)


def _is_covered(array: Buffer, writers: Sequence[Source], sizes: frozenset[str]) -> bool:
    """Whether every element of an array is stored to, for all sizes."""
    namer = Namer(sizes)
    axes = [f"e{k}" for k in range(len(array.shape))]
    box = [f"0 <= {axis} < {index_text(size, {}, namer)}" for axis, size in zip(axes, array.shape, strict=True)]
    pieces = []
    for source in writers:
        if source.store.buffer.name == array.name:
            names = dims(source.axes)
            where, _ = conditions_text(source.domain, names, namer)
            index = [index_text(i, names, namer) for i in source.store.index]
            bound = f"exists {', '.join(names.values())} : " if names else ""
            at = [f"{axis} = {i}" for axis, i in zip(axes, index, strict=True)]
            pieces.append(f"({bound}{' and '.join([where, *at])})")
    whole = " and ".join(t for t in (*box, namer.context()) if t) or "0 = 0"
    space = f"{namer.prefix()}{{ [{', '.join(axes)}] : "
    wanted = isl.make_set(f"{space}{whole} }}")
    return bool(wanted.is_subset(isl.make_set(f"{space}{' or '.join(pieces) or '0 = 1'} }}")))
