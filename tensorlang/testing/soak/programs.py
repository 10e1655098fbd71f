"""Random programs under random traces: the results of the unscheduled program, whatever runs them."""

from __future__ import annotations

from tensorlang.testing.soak.case import Outcome, Tell
from tensorlang.testing.soak.comparing import run_on, told, verified
from tensorlang.testing.soak.drawing import Draws
from tensorlang.testing.strategies import programs
from tensorlang.testing.traces import schedules


def run(seed: int, tell: Tell) -> Outcome:
    """Draw a program and a trace, and run it on the CPU; every fifth binds axes, and only the interpreter runs it."""
    draws = Draws(seed)
    bound, divided = draws.random.random() < 0.2, draws.random.random() < 0.2
    case = draws.draw(programs(max_stages=2 if bound else 3, divided=divided))
    schedule = draws.draw(schedules(case.outputs, threads=bound))
    tell(told(case.program.text, schedule))
    with verified(seed):
        run_on(case, schedule, "interpreter")
        if not bound:
            run_on(case, schedule, "llvm")
    return Outcome.OK
