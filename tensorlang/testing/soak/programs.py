"""Random programs under random traces, or the library's: the results of the unscheduled program, whatever runs them."""

from __future__ import annotations

from tensorlang import topi
from tensorlang.testing.soak.case import Outcome, Tell
from tensorlang.testing.soak.comparing import run_on, told, verified
from tensorlang.testing.soak.drawing import Draws
from tensorlang.testing.strategies import programs
from tensorlang.testing.traces import schedules


def run(seed: int, tell: Tell) -> Outcome:
    """Draw a program and a trace, and run it on the CPU; every fifth binds axes, and only the interpreter runs it.

    Of the others every sixth is scheduled by the library.
    """
    draws = Draws(seed)
    bound, divided = draws.random.random() < 0.2, draws.random.random() < 0.2
    case = draws.draw(programs(max_stages=2 if bound else 3, divided=divided))
    by_library = not bound and draws.random.random() < 1 / 6
    if by_library:
        schedule = topi.schedule(case.outputs, tuned=False)
    else:
        schedule = draws.draw(schedules(case.outputs, threads=bound))
    tell(told(case.program.text, schedule))
    with verified(seed):
        run_on(case, schedule, "interpreter")
        if not bound:
            run_on(case, schedule, "llvm")
    return Outcome.OK
