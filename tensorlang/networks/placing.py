"""The steps of a network that is exported: which arrays they take, and where these are, those inside of loops too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

import numpy as np

from tensorlang.dataclass import dataclass
from tensorlang.driver import Lowered
from tensorlang.errors import TargetError
from tensorlang.export.network import Held, Repeat, Use
from tensorlang.ir.expr import Buffer
from tensorlang.networks.model import Model, Step
from tensorlang.networks.repeating import Repeated
from tensorlang.runtime.memory import ALIGNMENT
from tensorlang.target.llvm.library.calls import Place
from tensorlang.target.llvm.library.chain import SEAL_BYTES
from tensorlang.te.operation import ExternOp, buffers


@dataclass(slots=True)
class Layout:
    """What a library holds: arrays by name, the bytes of weights in their order, and different kernels.

    `arena`: the bytes of what kernels pass on; what is inside of a loop lies behind what is around it.
    """

    arrays: dict[str, Held] = field(default_factory=dict)
    pieces: list[bytes] = field(default_factory=list)
    kernels: list[Lowered] = field(default_factory=list)
    arena: int = 0
    _weights: int = SEAL_BYTES

    def steps(self, model: Model, names: Mapping[str, str], prefix: str = "") -> list[Use | Repeat]:
        """Place the arrays of a model that have no place yet, by their names; its steps.

        TargetError for kernels that cannot leave this process.
        """
        used = dict.fromkeys(name for step in model.steps for name in step.used)
        called = {name: f"{prefix}{name}" for name in used} | dict(names)
        begin = self.arena
        self.arena += model.arena.size
        for name in used:
            if called[name] in self.arrays:
                continue
            if name in model.weights:
                self._add_weight(called[name], model.weights[name])
            else:
                shape, dtype = model.shapes[name]
                self.arrays[called[name]] = Held(dtype, shape, Place("arena", begin + model.arena.places[name]))
        return [self._step(step, called, prefix) for step in model.steps]

    def add(self, name: str, dtype: str, shape: tuple[int, ...]) -> str:
        """Give an array a place of its own in the arena; its name."""
        held = Held(dtype, shape, Place("arena", self.arena))
        self.arrays[name] = held
        self.arena += -(-max(held.size, 1) // ALIGNMENT) * ALIGNMENT
        return name

    def _add_weight(self, name: str, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> None:
        data = np.ascontiguousarray(array).tobytes()
        self.arrays[name] = Held(str(array.dtype), array.shape, Place("weights", self._weights))
        self.pieces.append(data + bytes(-len(data) % ALIGNMENT))
        self._weights += len(self.pieces[-1])

    def _step(self, step: Step, called: Mapping[str, str], prefix: str) -> Use | Repeat:
        if not isinstance(step.run.origin, Lowered):
            entry = step.run.entry_name
            raise TargetError(f"{entry} was not built here; export the model where tensorlang.compile makes it")
        given = {b.name: called[array] for b, array in zip(step.run.signature, step.arrays, strict=True)}
        guards = tuple(replace(g, array=called[g.array]) for g in step.guards)
        origin = {"stage": step.stage, "node": step.origin.node, "op": step.origin.op}
        about = {**origin, "operations": step.operations, "algorithm": step.algorithm}
        for op in step.run.origin.schedule.program.ops:
            if isinstance(op, ExternOp) and isinstance(op.function, Repeated):
                made = self._repeat(op, op.function, given, f"{prefix}{step.stage}.")
                return replace(made, guards=guards, about=about)
        number = self._kernel(step.run.origin)
        return Use(number, tuple(given[p.name] for p in step.run.kernel.params), guards, about)

    def _kernel(self, origin: Lowered) -> int:
        """The number of a kernel. TargetError for one that assumes what nobody tests."""
        for number, kernel in enumerate(self.kernels):
            if kernel is origin:
                return number
        facts = sorted({fact.array for fact in origin.schedule.state.facts})
        if facts:
            names = ", ".join(facts)
            raise TargetError(f"a schedule of the network assumes facts about {names}, which nobody tests in a library")
        self.kernels.append(origin)
        return len(self.kernels) - 1

    def _repeat(self, op: ExternOp, function: Repeated, given: Mapping[str, str], prefix: str) -> Repeat:
        """A loop: its states, and what an iteration makes, have places of their own, and nobody else has them."""
        body, states = function.body, function.states
        assert isinstance(body, Model)
        trips, condition, *taken = (given[b.name] for b in op.inputs if isinstance(b, Buffer))
        results = [given.get(b.name) for b in buffers(op)]
        own = [*body.inputs.values()]
        alone, same = own[: 2 + states], own[2 + states :]
        names = {name: self.add(f"{prefix}{name}", *_kind(body, name)) for name in (*alone, *body.outputs.values())}
        number, goes_on, *held = (names[name] for name in alone)
        made = [names[name] for name in body.outputs.values()]
        tells = made.pop(0) if function.tests else None
        return Repeat(
            trips,
            condition,
            number,
            goes_on,
            tells,
            dict(zip(held, taken[:states], strict=True)),
            dict(zip(held, made[:states], strict=True)),
            {target: state for target, state in zip(results[:states], held, strict=True) if target is not None},
            {target: row for target, row in zip(results[states:], made[states:], strict=True) if target is not None},
            self.steps(body, names | dict(zip(same, taken[states:], strict=True)), prefix),
        )


def _kind(model: Model, name: str) -> tuple[str, tuple[int, ...]]:
    shape, dtype = model.shapes[name]
    return dtype, shape
