"""In what a record differs from what was wanted: the program, or what it was measured for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tensorlang.autotune.records.lookup import bare
from tensorlang.autotune.records.record import TuningRecord
from tensorlang.target.spec import Target
from tensorlang.te.forms import OpForm, form_of
from tensorlang.words import format_threads

_SHOWN = 3  # arrays, stages or fields that are named
_FIELDS = {"cpu": "-mcpu", "features": "-mattr", "triple": "-mtriple", "cores": "cores", "caches": "caches"}


def program_differences(theirs: str, ours: str) -> str:
    """In what a program of a record differs from another, both as text; nothing for what is no program."""
    recorded, wanted = form_of(theirs), form_of(ours)
    if not recorded.ops or not wanted.ops or recorded.text == wanted.text:
        return ""
    more, fewer = _left(wanted.ops, recorded.ops), _left(recorded.ops, wanted.ops)
    if more or fewer:
        said = [f"it has no {_listed(more)}"] * bool(more) + [f"it has {_listed(fewer)}"] * bool(fewer)
        return ", ".join(said) + (", which is not here" if fewer else "")
    pairs = list(zip(recorded.ops, wanted.ops, strict=True))
    arrays = [(b.arrays[k], a.types[k], b.types[k]) for a, b in pairs for k in range(len(b.arrays))]
    changed = [f"{name} is {there} there, not {here}" for name, there, here in _unequal(arrays)]
    if changed:
        return ", ".join(changed[:_SHOWN])
    return f"other numbers in {_listed([b for a, b in pairs if a.shape != b.shape])}"


def _unequal(arrays: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    return [(name, f"{there}]", f"{here}]") for name, there, here in arrays if there != here]


def _left(some: Sequence[OpForm], others: Sequence[OpForm]) -> list[OpForm]:
    """The operations of some that others lack, whatever their types and numbers."""
    there, left = Counter(map(bare, others)), []
    for op in some:
        there[bare(op)] -= 1
        if there[bare(op)] < 0:
            left.append(op)
    return left


def _listed(ops: Sequence[OpForm]) -> str:
    more = f" and {len(ops) - _SHOWN} more" if len(ops) > _SHOWN else ""
    return ", ".join(("input " if op.is_input else "") + op.name for op in ops[:_SHOWN]) + more


def target_differences(record: TuningRecord, target: Target, threads: int) -> str:
    """In what the place of a record differs from a target and a number of threads."""
    here = target.to_json()
    wrong = [f for f in here if record.target.get(f) != here[f] and not (f == "cores" and record.threads != threads)]
    said = [f"{_FIELDS.get(field, field)} {record.target.get(field)}, not {here[field]}" for field in wrong]
    said += [f"{format_threads(record.threads)}, not {threads}"] * (record.threads != threads)
    return ", ".join(said)
