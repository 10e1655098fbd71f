"""Records that a search goes on from: its best counts as found, is shown and run, so it is proven like any other."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from tensorlang.autotune.apply import described
from tensorlang.autotune.records.log import best_record
from tensorlang.autotune.records.record import TuningRecord
from tensorlang.limits import for_a_record
from tensorlang.schedule.history import Attempts
from tensorlang.schedule.recorded import argument_bytes
from tensorlang.te.program import Program

_MOST_REFUSED = 32


def resumable(
    records: Sequence[TuningRecord], program: Program, name: str, prove: Callable[[TuningRecord], object]
) -> list[TuningRecord]:
    """The records of a program without the fastest ones that `prove` refuses, of which warnings tell.

    The fastest that is left is proven. Where very many are refused, none that has a time is taken.
    """
    attempts = Attempts("the search", name, argument_bytes(program))
    left = list(records)
    while (best := best_record(left)) is not None and len(attempts.refused) < _MOST_REFUSED:
        try:
            with for_a_record(attempts.argument_bytes):
                prove(best)
            break
        except Exception as error:
            attempts.refused.append((described(best), error))
            steps = json.dumps(best.trace)
            left = [r for r in left if r is not best and (not r.ok or json.dumps(r.trace) != steps)]
    else:
        left = [r for r in left if not r.ok]
    attempts.warn()
    return left
