"""From a network to kernels: its program folded, cut into groups, each scheduled, proven and built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from math import prod
from threading import Lock

from tensorlang.dataclass import dataclass
from tensorlang.driver import Lowered
from tensorlang.errors import ArgumentError
from tensorlang.networks.arena import aligned
from tensorlang.networks.building import Job, build_all
from tensorlang.networks.crew import STEPS_OF_A_KERNEL, Crew, workers_for
from tensorlang.networks.factors import with_factors_ahead
from tensorlang.networks.folding import folded
from tensorlang.networks.groups import Part, parts_of, tensors_of
from tensorlang.networks.largest import with_largest_bytes
from tensorlang.networks.model import Model, Step
from tensorlang.networks.narrow import narrowed
from tensorlang.networks.network import Array, Network
from tensorlang.networks.packing import packed, without_subnormals
from tensorlang.networks.pending import Pending
from tensorlang.networks.reciprocals import without_divisions
from tensorlang.networks.repeating import with_models
from tensorlang.networks.requantizing import without_bytes_between
from tensorlang.networks.scaling import scaled
from tensorlang.networks.signature import Origin
from tensorlang.networks.winograd import with_winograd
from tensorlang.runtime.executable import Executable
from tensorlang.runtime.memory import give_back
from tensorlang.runtime.pace import steady
from tensorlang.target import parse
from tensorlang.target.spec import Target
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import ComputeOp, ExternOp, Operation, PlaceholderOp, buffers
from tensorlang.te.program import Program, canonical

NUMERICS = ("default", "strict")
"""What a network may do to be faster; `strict`: nothing that rounds more than sums do."""
Progress = Callable[[int, int, str], None]
"""Told after each kernel: how many are built, of how many, and which one was."""


def compile_network(
    network: Network,
    target: str | Target | None = None,
    progress: Progress | None = None,
    numerics: str = "default",
) -> Model:
    """Return a network compiled for a target (this machine's CPU unless given).

    Every kernel takes the best tuned record of its program where there is one (`topi.schedule`), and is proven. Kernels
    of one program are built once. Convolutions of 3 * 3 in float32 are computed by Winograd's algorithm where that is
    estimated to be faster, with errors of 2e-6 to 4e-6 of the largest value; `numerics="strict"` has plain sums only.
    Raises what `build` raises, and ArgumentError for other numerics.
    """
    machine, held = parse(target), [network]
    del network  # so that its weights go when they are laid out, where nobody else has them
    with steady(), Crew() as crew:
        return compile_with(crew, held.pop(), machine, progress, numerics)


def compile_with(
    crew: Crew,
    network: Network,
    machine: Target,
    progress: Progress | None,
    numerics: str,
    keep: Callable[[Mapping[str, Array]], object] = lambda weights: None,
) -> Model:
    """Return a network compiled for a target, its kernels built by a crew as well.

    `keep` is told the weights of a network that calls no Python functions, while LLVM is at its last kernels.
    """
    if numerics not in NUMERICS:
        raise ArgumentError(f"numerics are {' or '.join(NUMERICS)}, got {numerics!r}")
    give_back()  # what reading the model took
    program, wanted = program_of(network)
    crew.begin(workers_for(len(program.ops) // STEPS_OF_A_KERNEL))
    rewritten, network = _rewritten(program, network.weights, machine, numerics), replace(network, weights={})
    program, inner = with_models(rewritten.program, lambda body: compile_network(body, machine, None, numerics))
    parts = parts_of(program, machine)
    held = _Held(rewritten.weights, {name for part in parts for name in (*part.needed, *part.outputs)})
    held.lay_out()  # at once, into the memory that reading took: a second later a virtual machine has lost it
    give_back()

    def meanwhile() -> None:
        if not any(isinstance(op, ExternOp) for op in program.ops):
            keep(held.made)

    kernels = _kernels(crew, program, parts, machine, progress or (lambda done, count, stage: None), meanwhile)
    steps = [
        Step(
            run,
            (*part.inputs, *part.outputs),
            part.main,
            _origin(network, part),
            sum(map(operations, part.ops)),
            rewritten.algorithms.get(part.main, "direct"),
            part.guards,
        )
        for part, run in zip(parts, kernels, strict=True)
    ]
    arrays = {b.name: b for op in program.ops for b in buffers(op)}
    shapes = {name: (tuple(extent_of(e) or 0 for e in b.shape), b.dtype) for name, b in arrays.items()}
    inputs = {word: t.name for word, t in zip(network.input_names, network.inputs, strict=True)}
    outputs = dict(zip(network.output_names, wanted, strict=True))
    weights = held.made
    give_back()
    return Model(
        network.name, steps, shapes, weights, inputs, outputs, inner, network.signature, network.fallback, network.tail
    )


@dataclass(frozen=True, slots=True)
class _Rewritten:
    """The program that kernels are made of, its weights, and which stages compute in another way than they say."""

    program: Program
    weights: Pending
    algorithms: Mapping[str, str]


def _rewritten(program: Program, known: Mapping[str, Array], machine: Target, numerics: str) -> _Rewritten:
    """A program as this machine is to compute it."""
    algorithms: dict[str, str] = {}
    weights: Mapping[str, Array]
    program, weights = scaled(program, known)
    if numerics != "strict":
        program, weights = with_factors_ahead(without_bytes_between(without_divisions(program)), weights)
        program, weights, algorithms = with_winograd(program, weights, machine)
    program, weights = narrowed(with_largest_bytes(program), weights, machine)
    if numerics != "strict":
        weights = without_subnormals(program, weights)
    program, weights = packed(program, weights, machine)
    return _Rewritten(program, weights, algorithms)


@dataclass(frozen=True, slots=True)
class _Held:
    """What kernels read of the weights, once it is `made`."""

    weights: Pending
    used: set[str]
    made: dict[str, Array] = field(default_factory=dict)

    def lay_out(self) -> None:
        """Make the arrays as kernels read them, each from when it is done in the place of what it was."""
        for name in [*self.weights]:
            if name in self.used:
                self.made[name] = aligned(self.weights[name])
            del self.weights[name]


def _origin(network: Network, part: Part) -> Origin:
    """The nodes that a kernel computes the sums of."""
    found = dict.fromkeys(network.origin(name) for name in part.mains)
    ops = dict.fromkeys(origin.op for origin in found)
    return Origin(" + ".join(origin.node for origin in found), " + ".join(ops))


def _kernels(
    crew: Crew,
    program: Program,
    parts: Sequence[Part],
    machine: Target,
    progress: Progress,
    meanwhile: Callable[[], None],
) -> list[Executable]:
    """The kernels of parts; those of one program are the same. What is to be done `meanwhile` waits for no kernel."""
    jobs, kinds, places = list[Job](), dict[str, int](), list[int]()
    for part in parts:
        inputs, outputs = tensors_of(program, part)
        own, _ = canonical(outputs)
        said = ", ".join(map(_kind, own.ops))
        text = f"{own.text} of {said} by {', '.join(t.name for t in inputs)}"
        if text not in kinds:
            kinds[text] = len(jobs)
            jobs.append(Job(tuple(inputs), tuple(outputs), machine, any(isinstance(op, ExternOp) for op in own.ops)))
        places.append(kinds[text])
    done, lock = list[int](), Lock()

    def told(job: Job) -> None:
        with lock:
            done.extend(k for k, place in enumerate(places) if jobs[place] is job)
            progress(len(done), len(parts), parts[done[-1]].main)

    made = build_all(jobs, crew.begin(workers_for(len(jobs))), told, meanwhile=meanwhile)
    kernels = [made[place] for place in places]
    for kernel in kernels:
        if isinstance(kernel.origin, Lowered):  # another machine gets the library's schedule, not these steps
            kernel.origin = replace(kernel.origin, library=True)
    return kernels


def _kind(op: Operation) -> str:
    """What tells a stage from others with the same text."""
    return str(id(op.function)) if isinstance(op, ExternOp) else "" if isinstance(op, PlaceholderOp) else op.tag


def program_of(network: Network) -> tuple[Program, tuple[str, ...]]:
    """The program of a network, folded, and its stages that are the outputs, in order."""
    program, names = canonical([*network.outputs, *network.inputs])
    wanted = tuple(names[id(t.op)] for t in network.outputs)
    return folded(Program(program.ops, tuple(dict.fromkeys(wanted)))), wanted


def operations(op: Operation) -> float:
    """Two for each term of a sum, and one for each element of other stages."""
    if not isinstance(op, ComputeOp):
        return 0.0
    points = prod(extent_of(a.extent) or 1 for a in (*op.axes, *op.reduce_axes))
    return float(points * (2 if op.reduce_axes else 1))
