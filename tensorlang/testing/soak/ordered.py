"""Random programs with order in them, of any size and through data, under random schedules, or the library's."""

from __future__ import annotations

from tensorlang import topi
from tensorlang.testing.check import check_schedule
from tensorlang.testing.ordered_programs import ordered_programs
from tensorlang.testing.soak.case import Outcome, Tell
from tensorlang.testing.soak.comparing import told, verified
from tensorlang.testing.soak.drawing import Draws
from tensorlang.testing.traces import schedules


def run(seed: int, tell: Tell) -> Outcome:
    """Draw a program and a schedule, and run it for two of its sizes."""
    draws = Draws(seed)
    case = draws.draw(ordered_programs(data=draws.random.random() < 0.5))
    if draws.random.random() < 1 / 6:
        schedule = topi.schedule(case.outputs, tuned=False)
    else:
        schedule = draws.draw(schedules(case.outputs))
    tell(told(case.program.text, schedule))
    with verified(seed):
        for sizes in {str(s): s for s in (case.sizes[-1], draws.random.choice(case.sizes))}.values():
            check_schedule(schedule, case.args, sizes, inputs=case.inputs(sizes))
    return Outcome.OK
