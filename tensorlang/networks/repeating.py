"""A network that runs again and again inside of another one, where it is a stage that calls Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tensorlang.networks.model import Memory, Model
from tensorlang.networks.network import Array, Network
from tensorlang.te.operation import ExternOp
from tensorlang.te.program import Program


class Repeated:
    """Runs a network as often as it is told: `f(trips, condition, *states, *captured, *last_states, *rows)`.

    The body takes its number, whether it goes on, so many `states`, and what is the same in all iterations; it gives
    whether another one follows, if it `tests` that, the next states, and rows, which are collected.
    """

    def __init__(self, body: Network | Model, states: int, tests: bool) -> None:
        self.body, self.states, self.tests = body, states, tests
        self.__qualname__ = f"repeated {body.name}"  # by which a program shows it

    def __call__(self, trips: Array, condition: Array, *arrays: Array) -> None:
        """Iterate; outputs are written at the end, rows when they are made."""
        assert isinstance(self.body, Model)
        taken, made = len(self.body.inputs) - 2, len(self.body.outputs) - self.tests
        states, same = list(arrays[: self.states]), arrays[self.states : taken]
        last, rows = arrays[taken : taken + self.states], arrays[taken + self.states : taken + made]
        goes_on = np.asarray(condition.item(), np.bool_)
        for number in range(trips.item()):
            if not goes_on:
                break
            found = list(self.body.run([np.asarray(number, np.int64), goes_on, *states, *same]))
            goes_on = found.pop(0).reshape(()) if self.tests else goes_on
            states = found[: self.states]
            for row, value in zip(rows, found[self.states :], strict=True):
                row[number] = value
        for output, state in zip(last, states, strict=True):
            output[...] = state


def with_models(program: Program, make: Callable[[Network], Model]) -> tuple[Program, Memory]:
    """A program with the networks that it repeats compiled, and what these keep."""
    changed = {}
    memory = Memory(0, 0)
    for op in program.ops:
        if isinstance(op, ExternOp) and isinstance(op.function, Repeated) and isinstance(op.function.body, Network):
            model = make(op.function.body)
            changed[op.name] = replace(op, function=Repeated(model, op.function.states, op.function.tests))
            own = model.memory()
            memory = Memory(memory.weights + own.weights, memory.arena + own.arena)
    return program.replacing(dict(changed)), memory
