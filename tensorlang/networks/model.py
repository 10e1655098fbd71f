"""A compiled network: its kernels in order, bound to the arrays that they pass on."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import call
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import ArgumentError, TargetError
from tensorlang.networks.arena import Arena, Life, arena_of
from tensorlang.networks.signature import Array, Origin, Plain, Signature, Tail
from tensorlang.runtime.executable import Executable
from tensorlang.runtime.memory import aligned_empty

if TYPE_CHECKING:
    from tensorlang.export.writing import Exported
    from tensorlang.networks.profiling import KernelTime
    from tensorlang.networks.refusal import Refusal
    from tensorlang.networks.tuning import NetworkProgress, TunedNetwork
    from tensorlang.te.branches import Guard

Shapes = Mapping[str, tuple[tuple[int, ...], str]]
_Call: TypeAlias = "tuple[Executable, list[Any], list[tuple[int, str]], tuple[Guard, ...]]"
"""A kernel with its arrays, the places of those that each call brings, and when it runs."""


@dataclass(frozen=True, slots=True)
class _Bound:
    """Kernels bound to the memory of a thread. `stretches`: their numbers, and calls of them where all else is known.

    These are run without the interpreter in between, whose code and data kernels drive out of the caches: that took
    3 us a kernel.
    """

    held: dict[str, Array]
    calls: list[_Call]
    stretches: list[tuple[range, list[Callable[[], None]]]]


@dataclass(frozen=True, slots=True)
class Step:
    """A kernel and the arrays that it is called with; `stage` is its last sum, `origin` the nodes of all of them.

    `algorithm`: how it computes what its node says, where there are several ways. It runs where all `guards` are as
    they say.
    """

    run: Executable
    arrays: tuple[str, ...]
    stage: str
    origin: Origin
    operations: float
    algorithm: str = "direct"
    guards: tuple[Guard, ...] = ()

    @property
    def used(self) -> tuple[str, ...]:
        """The arrays that it reads and writes, and those that tell whether it runs."""
        return (*self.arrays, *(guard.array for guard in self.guards))


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of a compiled network: of its weights, and of the block for what its kernels pass on."""

    weights: int
    arena: int


_NONE = Memory(0, 0)


@dataclass(frozen=True, slots=True)
class VendorPart:
    """Nodes of a kernel, with its seconds `here` and those that another library takes for them, `there`.

    `taken`: that library runs them in the network.
    """

    nodes: tuple[str, ...]
    here: float
    there: float
    taken: bool

    def __str__(self) -> str:
        where = "onnxruntime" if self.taken else "here"
        return f"{', '.join(self.nodes)}: {self.here * 1e6:.1f} us, onnxruntime {self.there * 1e6:.1f}; runs {where}"


class Span(NamedTuple):
    """When something began and ended, by `time.perf_counter`."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.begin


class Model:
    """A network compiled for a target. A call takes its inputs and returns its outputs, as its signature says.

    Inputs are NumPy arrays, or whatever DLPack reads, of the shapes and dtypes of the network's inputs; outputs are new
    arrays: one, or a tuple of several. Threads may call it at once: each has memory of its own.
    """

    def __init__(
        self,
        name: str,
        steps: Sequence[Step],
        shapes: Shapes,
        weights: Mapping[str, Array],
        inputs: Mapping[str, str],
        outputs: Mapping[str, str],
        inner: Memory = _NONE,
        signature: Signature | None = None,
        fallback: Sequence[Refusal] = (),
        tail: Tail | None = None,
    ) -> None:
        """`shapes` of all arrays; `inputs` and `outputs` give the arrays of the model's names.

        `inner`: what is kept within steps that are networks themselves. `signature`: how it is called, plainly
        unless given. `fallback`: the nodes that onnxruntime is called for, and why; `tail` those of them that
        run behind all kernels.
        """
        self.name = name
        self.steps = tuple(steps)
        self.inputs, self.outputs = dict(inputs), dict(outputs)
        self.signature = signature or Plain(name)
        self.fallback = tuple(fallback)
        self.tail = tail
        self.shapes, self.weights = dict(shapes), dict(weights)
        given = {*self.inputs.values(), *self.outputs.values(), *self.weights}
        self.arena: Arena = arena_of(_lives(self.steps, self.shapes, given))
        self.again: Callable[[], Model] | None = None  # makes it from its file, where it is from the cache
        self.vendor: tuple[VendorPart, ...] = ()  # what was compared, where parts were to go to another library
        self._inner = inner
        self._bound = threading.local()

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        """Run the network; ArgumentError for inputs that do not fit."""
        return self.signature.nested(self.run(self.signature.flat(inputs, keywords)), inputs, keywords)

    def run(self, inputs: Sequence[Any]) -> tuple[Array, ...]:
        """Run the network on its inputs in order, and return its outputs."""
        made = self._made()
        own = self._given(inputs) | made
        for numbers, kernels in self._bind().stretches:
            if kernels:
                deque(map(call, kernels), maxlen=0)
            else:
                for _, run, arrays in self._filled(own, numbers):
                    run(*arrays)
        found = {word: made[name] for word, name in self.outputs.items()}
        return tuple(found.values()) if self.tail is None else self.tail.results(found)

    def profile(
        self,
        *inputs: Any,
        repeat: int = 5,
        roofline: bool = False,
        trace: str | os.PathLike[str] | None = None,
        **keywords: Any,
    ) -> tuple[KernelTime, ...]:
        """Time each kernel that runs, in the order of a run: the fastest of some runs of the network.

        `roofline`: also the time that each takes at least on this machine, which is measured for it in up to a few
        seconds. `trace`: write these runs to a file that Perfetto (https://ui.perfetto.dev) and Chrome's
        `chrome://tracing` show, in their JSON format: a slice for each kernel with all that is known of it.
        """
        from tensorlang.networks.profiling import profiled

        return profiled(self, self.signature.flat(inputs, keywords), repeat, roofline, trace)

    def timed(self, inputs: Sequence[Any], instead: Mapping[Executable, Executable] | None = None) -> list[Span]:
        """Run the network once; when each kernel began and ended. `instead`: what runs in the places of kernels.

        Kernels of branches that are not taken begin and end at 0.
        """
        given, made, found = self._given(inputs), self._made(), [Span(0.0, 0.0)] * len(self.steps)
        others, clock = instead or {}, time.perf_counter
        for number, run, arrays in self._filled(given | made):
            kernel = others.get(run, run)
            begin = clock()
            kernel(*arrays)
            found[number] = Span(begin, clock())
        return found

    def tune(
        self,
        *inputs: Any,
        seconds: float | None = None,
        trials: int | None = None,
        log: str | os.PathLike[str] = "default",
        seed: int = 0,
        progress: Callable[[NetworkProgress], None] | None = None,
    ) -> TunedNetwork:
        """Tune the kernels of the network, and take those that are faster in it than its own.

        The budget, in seconds of wall time, trials, or both, goes where it lowers the time of a run most
        (`autotune.TaskScheduler`): programs weigh as often as they are called, those without a record in the log
        come first, those that take less than 0.2 % of a run are left as they are. Records are appended to `log`
        (`default`: this machine's in the default store, from which `tensorlang.compile` takes the best from then on);
        tuned again, the network goes on where it stopped. Then kernels and those of the best records run by turns in
        the network, on `inputs` or random ones, and where a tuned one is faster, it gets the place. Outputs stay equal
        up to rounding: each new best is compared with the unscheduled program. `progress` is told after each trial;
        `autotune.on_phase` tells what tuning is at.

        Ctrl-C raises tensorlang.networks.tuning.Interrupted when the kernels found so far are in their places; it
        holds the result. ArgumentError without a budget, DefinitionError for one that is none, TargetError for models
        that were loaded from a library, or whose target this machine cannot run, RecordError when the log cannot be
        written.
        """
        from tensorlang.networks.tuning import tune_model

        given = self.signature.flat(inputs, {}) if inputs else ()
        return tune_model(self, seconds, trials, log, seed, progress, given)

    def build_here(self) -> None:
        """Have kernels with their schedules, where those of the cache have none.

        TargetError where nobody knows these, as in a model that was loaded from a library.
        """
        from tensorlang.driver import Lowered

        if self.again is not None:
            self._become(self.again())
        if not all(isinstance(step.run.origin, Lowered) for step in self.steps):
            raise TargetError(
                f"the kernels of {self.name} were not built here; go on where tensorlang.compile makes it"
            )

    def exchange(self, kernels: Mapping[Executable, Executable]) -> None:
        """Run other kernels in the places of some, from the next call on; they take the same arrays."""
        self.steps = tuple(replace(step, run=kernels.get(step.run, step.run)) for step in self.steps)
        self._bound = threading.local()

    def _become(self, other: Model) -> None:
        """Take over the kernels of another model of the same network, with all that belongs to them."""
        self.steps, self.shapes, self.weights, self.arena = other.steps, other.shapes, other.weights, other.arena
        self.inputs, self.outputs, self.again = other.inputs, other.outputs, None
        self._bound = threading.local()

    @property
    def input_names(self) -> tuple[str, ...]:
        """The model's names of its inputs, in order."""
        return tuple(self.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The model's names of its outputs, in order."""
        return tuple(self.outputs) if self.tail is None else self.tail.names

    @property
    def input_shapes(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        """Shape and NumPy dtype of each input, by the model's name for it."""
        return {word: self._described(array) for word, array in self.inputs.items()}

    def memory(self) -> Memory:
        """Bytes that the network keeps."""
        weights = sum(w.nbytes for w in self.weights.values())
        return Memory(weights + self._inner.weights, self.arena.size + self._inner.arena)

    def export(
        self,
        path: str | Path,
        formats: Sequence[str] = ("so", "o", "a", "h"),
        threads: str = "host",
        faces: Sequence[str] = ("c",),
        isas: Sequence[str] = (),
        embed: bool = False,
        check: Sequence[Any] | None = None,
        linker: str | None = None,
    ) -> Exported:
        """Write the network as files that C, and all that calls C, can use without Python; return what was written.

        `model.export("out/net")` gives `net.so`, `net.o`, `net.a`, `net.h`, `net.json` and `net.weights`: all kernels,
        and the function `net_run(inputs..., outputs..., weights, workspace, host)`, which calls them in turn. It keeps
        what they pass on in the workspace of its caller, and allocates nothing. Weights are read or mapped from their
        file by the caller, or are in the library itself (`embed=True`). Arguments that are known from kernels
        (`Executable.export`) mean the same; format "c" writes a program that runs the network on `check`: its inputs,
        with the outputs to compare with, or else those that the model makes here. `tensorlang.load("out/net.so")` gives
        a model again.

        ArgumentError for words that are none of these, TargetError for what cannot leave this process.
        """
        from tensorlang.export.writing import Choices
        from tensorlang.networks.exporting import export_model

        how = Choices(tuple(formats), threads, tuple(faces), linker)
        return export_model(self, path, how, isas, embed, check)

    def checked(self, inputs: Sequence[Any]) -> list[Array]:
        """Inputs as arrays of the network, in order; ArgumentError for those that do not fit."""
        return list(self._given(inputs).values())

    def _given(self, inputs: Sequence[Any]) -> dict[str, Array]:
        """The inputs of a call by the names of their arrays, checked."""
        if len(inputs) != len(self.inputs):
            wanted = f"{len(self.inputs)} inputs ({', '.join(self.inputs)})"
            raise ArgumentError(f"{self.name} takes {wanted}, got {len(inputs)}")
        return {
            array: self._checked(word, array, value)
            for (word, array), value in zip(self.inputs.items(), inputs, strict=True)
        }

    def _made(self) -> dict[str, Array]:
        return {name: np.empty(*self._described(name)) for name in self.outputs.values()}

    def _filled(
        self, own: Mapping[str, Array], numbers: range | None = None
    ) -> Iterator[tuple[int, Executable, list[Any]]]:
        """The kernels that are to run, by number, with all of their arrays, those of a call included.

        Whether one runs is looked at when those before it have. `numbers`: only these.
        """
        held, calls = self._bind().held, self._bind().calls
        for number in range(len(calls)) if numbers is None else numbers:
            run, arrays, open_places, guards = calls[number]
            if guards and not all((own if g.array in own else held)[g.array].item(g.at) == g.holds for g in guards):
                continue
            for place, name in open_places:
                arrays[place] = own[name]
            yield number, run, arrays

    def _described(self, name: str) -> tuple[tuple[int, ...], Any]:
        shape, dtype = self.shapes[name]
        return shape, dtypes.info(dtype).numpy

    def _checked(self, word: str, name: str, value: Any) -> Any:
        shape, dtype = self._described(name)
        array = np.asarray(value) if isinstance(value, np.generic) else value
        if not isinstance(array, np.ndarray) and hasattr(array, "__dlpack__"):
            array = np.from_dlpack(array)
        if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != dtype:
            got = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else type(value).__name__
            raise ArgumentError(f"{self.name}: the input {word} is {np.dtype(dtype)}{list(shape)}, got {got}")
        return np.require(array, requirements="C")

    def _bind(self) -> _Bound:
        """The kernels, bound to this thread's memory."""
        if not hasattr(self._bound, "kernels"):
            self._bound.kernels = self._bound_here()
        kernels: _Bound = self._bound.kernels
        return kernels

    def _bound_here(self) -> _Bound:
        block = aligned_empty((self.arena.size,), np.uint8)
        held: dict[str, Array] = dict(self.weights)
        for name, place in self.arena.places.items():
            shape, dtype = self._described(name)
            size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
            held[name] = block[place : place + size].view(dtype).reshape(shape)
        calls: list[_Call] = [
            (
                step.run,
                [held.get(name) for name in step.arrays],
                [(k, name) for k, name in enumerate(step.arrays) if name not in held],
                step.guards,
            )
            for step in self.steps
        ]
        return _Bound(held, calls, _stretches(calls))

    def __repr__(self) -> str:
        memory = self.memory()
        others = f", {len(self.fallback)} nodes by onnxruntime" if self.fallback else ""
        return (
            f"Model({self.name}: {len(self.steps)} kernels{others}, weights {memory.weights / 1e6:.1f} MB, "
            f"arena {memory.arena / 1e6:.1f} MB)"
        )


def _stretches(calls: Sequence[_Call]) -> list[tuple[range, list[Callable[[], None]]]]:
    """Kernels in a row that run in each call, on arrays that are known, and others."""
    found = list[tuple[range, list[Callable[[], None]]]]()
    for known, numbers in groupby(range(len(calls)), lambda number: not any(calls[number][2:])):
        first, *rest = numbers
        row = range(first, first + 1 + len(rest))
        found.append((row, [partial(calls[n][0], *calls[n][1]) for n in row] if known else []))
    return found


def _lives(steps: Sequence[Step], shapes: Shapes, given: set[str]) -> dict[str, Life]:
    """From the kernel that makes an array to the last that reads it."""
    found: dict[str, Life] = {}
    for number, step in enumerate(steps):
        for name in step.used:
            if name in given:
                continue
            shape, dtype = shapes[name]
            size = int(np.prod(shape, dtype=np.int64)) * dtypes.info(dtype).bytes
            first = found[name].first if name in found else number
            found[name] = Life(size, first, number)
    return found
