"""Random programs on blocks and threads: with races detected, copies early and late, and on OpenCL where it is."""

from __future__ import annotations

from functools import cache

from tensorlang import lower, nd
from tensorlang.errors import ScheduleError, TargetError
from tensorlang.ir import threads
from tensorlang.ir.stmt import Launch, walk
from tensorlang.testing.device_traces import device_schedules
from tensorlang.testing.soak.case import Outcome, Tell
from tensorlang.testing.soak.comparing import assert_right, noise, run_on, told, verified
from tensorlang.testing.soak.drawing import Draws
from tensorlang.testing.strategies import programs


def run(seed: int, tell: Tell) -> Outcome:
    """Draw a program and a schedule of blocks and threads; `refused` where it asks for what no GPU runs."""
    draws = Draws(seed)
    case = draws.draw(programs(max_stages=draws.random.choice((2, 3))))
    schedule = draws.draw(device_schedules(case.outputs))
    tell(told(case.program.text, schedule))
    with verified(seed):
        try:
            kernel = lower(schedule, case.tensors, target="interpreter").kernel
        except (ScheduleError, TargetError):
            return Outcome.REFUSED
        if not any(isinstance(stmt, Launch) for stmt in walk(kernel.body)):
            return Outcome.REFUSED
        for late in (False, True):
            outputs = noise(case)
            arrays = {t.name: a.copy() for t, a in zip(case.placeholders, case.inputs, strict=True)}
            arrays |= {t.name: a for t, a in zip(case.outputs, outputs, strict=True)}
            threads.run(kernel, {p.name: arrays[p.name] for p in kernel.params}, late=late)
            assert_right(case, outputs, f"with copies as {'late' if late else 'early'} as may be")
        for target in present():
            run_on(case, schedule, target)
    return Outcome.OK


@cache
def present() -> tuple[str, ...]:
    """The kinds of devices of this machine."""
    return tuple(target for target in ("opencl", "cuda") if nd.enabled(target))
