"""A compiled kernel: call it, time it, look at its code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from tensorlang import config
from tensorlang.dataclass import dataclass
from tensorlang.errors import ArgumentError, TargetError
from tensorlang.ir.overflow import SizeCheck
from tensorlang.ir.printer import kernel_text
from tensorlang.ir.stmt import Kernel
from tensorlang.names import Explained, lookup
from tensorlang.runtime.arguments import ArgumentCheck, Signature
from tensorlang.runtime.arrays import as_array, plain_arrays
from tensorlang.runtime.classic import MAIN, ClassicModule
from tensorlang.runtime.device_arrays import CheckedArray
from tensorlang.runtime.facts import FactCheck
from tensorlang.runtime.memory import Memory, MemoryOf
from tensorlang.runtime.opaque import opaque
from tensorlang.runtime.returning import Returned
from tensorlang.runtime.timer import Stopwatch, TimeEvaluator, host_clock
from tensorlang.target.spec import Target


class Launch(Protocol):
    """Runs a kernel on checked arrays and sizes, both in the kernel's order; raises KernelError on a Fail."""

    def __call__(self, arrays: Sequence[Any], sizes: Sequence[int]) -> None: ...


_PICKLING = "tensorlang.target.backend"
"""The module, of a floor above, that knows how kernels are packed."""
_LONG = 2**31
"""Loops of so many iterations are not begun where there is nothing to write: most of a day may pass in empty ones."""

Fast = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Makes a quicker entry from the one that checks in Python, which it calls with whatever it does not take."""


@dataclass(frozen=True, slots=True)
class DeviceModule:
    """The kernels that an executable launches: `get_source()` is their text, `type_key` the kind of the target."""

    type_key: str
    source: Callable[[str], str]

    def get_source(self, fmt: str = "") -> str:
        """The text of the kernels in the language of the target, or in another form that the executable has."""
        return self.source(fmt or self.type_key)


class Origin(Protocol):
    """What a kernel was built from."""

    @property
    def pickled(self) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
        """What makes the kernel again in another process, if not its loops."""

    @property
    def export(self) -> Callable[..., Any]:
        """Writes the kernel to files."""


class Executable(ClassicModule, Explained):
    """A kernel that runs: `f(*arrays)` in the order of its signature. Outputs are written in place.

    Without any of the outputs, a call makes them, in the library of the inputs, and returns them: `c = f(a, b)`.

    Arrays are NumPy arrays or CPU tensors that speak DLPack, for a GPU also arrays of its library; ArgumentError says
    what does not fit.
    `signature` is what the caller passes, if not `kernel.params`. `sources` gives the text of each stage by name,
    besides `loops`; `fast` an entry that does the checks of plain NumPy arguments itself; `memory`
    counts scratch memory; `convert` makes an array of an argument; `stopwatch` times calls; `exact` tells sizes that
    are too large, if not the kernel itself.
    """

    # The slot of the entry is named so that a call finds it without a Python function between.
    __slots__ = (
        "__call__",
        "_check",
        "_facts",
        "_kept",
        "_memory",
        "_profiled",
        "_returned",
        "_sources",
        "_stopwatch",
        "has_loops",
        "kernel",
        "origin",
        "packed",
        "signature",
        "target",
    )
    __call__: Callable[..., Any]

    def __init__(
        self,
        kernel: Kernel,
        target: Target,
        launch: Launch,
        *,
        sources: Mapping[str, Callable[[], str]] | None = None,
        fast: Fast | None = None,
        signature: Signature | None = None,
        memory: MemoryOf | None = None,
        convert: Callable[[Any], CheckedArray] = as_array,
        stopwatch: Stopwatch = host_clock,
        exact: SizeCheck | None = None,
    ) -> None:
        self.kernel = kernel
        self.target = target
        self.origin: Origin | None = None  # what it was built from, for those who build
        self.packed: Callable[[], bytes] | None = None  # its object, as `unpack` of its backend takes it
        self.has_loops = True  # not where it is loaded from a library, which has machine code alone
        self.signature: Signature = kernel.params if signature is None else signature
        self._sources = dict(sources or {})
        self._memory = memory
        self._stopwatch = stopwatch
        self._kept: object = None
        self._profiled: Any = None
        self._facts: tuple[tuple[FactCheck, ...], bool] = (), False
        self._check = check = ArgumentCheck(
            kernel.name,
            self.signature,
            kernel.params,
            kernel.sizes,
            kernel.outputs,
            convert,
            exact or SizeCheck(kernel),
        )
        self._returned = Returned()
        self.__call__ = _entry(launch, check, fast, self._returned)

    def completed(self, args: Sequence[Any]) -> Sequence[Any]:
        """The arguments of a call, with outputs made where it has none; raises what the call does for wrong inputs."""
        returned, check = self._returned, self._check
        return returned.completed(check, args)[0] if returned.lacking(check, len(args)) else args

    def returns(self, outputs: Sequence[str]) -> Executable:
        """Let calls leave out outputs, of these names, which begin as zeros then; returns the kernel."""
        self._returned.names = tuple(outputs)
        return self

    def require(self, facts: Sequence[FactCheck], always: bool = False) -> Executable:
        """Test facts about arguments on each call, or those that run with TENSORLANG_CHECK=1; returns the kernel."""
        if facts:
            self._facts = tuple(facts), always
            self.__call__ = _tested(self.__call__, tuple(facts), always)
        return self

    @property
    def assumes(self) -> bool:
        """Whether facts about its arguments are tested, or assumed."""
        return bool(self._facts[0])

    def keeps(self, library: object) -> None:
        """Have something live as long as the kernel does."""
        self._kept = library

    def __reduce__(self) -> Any:
        """Pickle as the kernel and its object: whoever reads it on a machine of this kind need not compile."""
        origin = self.origin.pickled if self.origin is not None else None
        packed = import_module(_PICKLING).pickled
        return origin or packed(self.kernel, self.target, self.signature, *self._facts, self._returned.names)

    def __getitem__(self, name: str) -> Executable:
        """Return this function by its name, as classic modules do."""
        if name != self.entry_name and not (name == MAIN and self.entry_name == f"{MAIN}_"):
            raise KeyError(f"{name!r}; this executable holds {self.entry_name!r}")
        return self

    @property
    def entry_name(self) -> str:
        """The name of the function."""
        return self.kernel.name

    @property
    def source_forms(self) -> tuple[str, ...]:
        """The names that `source` takes."""
        return ("loops", *self._sources)

    def source(self, stage: str = "loops") -> str:
        """The text of a stage: `loops`, and what the target has (`ll` and `asm` for llvm)."""
        if stage == "loops":
            return kernel_text(self.kernel)
        if stage not in self._sources:
            raise TargetError(
                f"no source {stage!r} for target {self.target.kind}; it has {', '.join(self.source_forms)}"
            )
        return self._sources[stage]()

    def get_source(self, fmt: str = "") -> str:
        """The text of a stage; "" is the first that the target makes from the loops."""
        return self.source(fmt or next(iter(self._sources), "loops"))

    def export(self, path: str | Path, **how: Any) -> Any:
        """Write the kernel to files that C, and whatever calls C, can use without Python: `f.export("out/layer")`.

        See `tensorlang.driver.Lowered.export` for what it takes; returns the files that were written.
        """
        if self.origin is None:
            raise TargetError(f"{self.entry_name} was not built here; export it where tensorlang.build made it")
        return self.origin.export(path, **how)

    def torch_op(self, name: str, backward: bool | Executable = True) -> Any:
        """Register the kernel as an operator of PyTorch, `torch.ops.namespace.name`, and return that.

        See `tensorlang.frameworks.torch_op.torch_operator` for what it takes and raises, and docs/frameworks.md.
        """
        return lookup(__name__, "torch_operator")(self, name, backward)

    def jax_op(self, backward: bool | Executable = True) -> Any:
        """Make the kernel a function of JAX.

        See `tensorlang.frameworks.jax_op.jax_function` for what it takes and raises, and docs/frameworks.md.
        """
        return lookup(__name__, "jax_function")(self, backward)

    @property
    def imported_modules(self) -> list[DeviceModule]:
        """What runs on a device, as classic modules show it: the kernels of a GPU, and nothing for a CPU."""
        return [DeviceModule(str(self.target.kind), self.source)] if self.target.can.device else []

    def memory(self, **sizes: int) -> Memory:
        """The scratch memory that a call has in use at most, for the values of its symbolic sizes: `f.memory(n=100)`.

        Threads keep this memory between calls, in a block that grows to the most it was ever asked for.
        """
        if self._memory is None:
            raise TargetError(f"target {self.target.kind} does not count scratch memory; build for target='llvm'")
        wanted = {v.name for v in self.kernel.sizes}
        if wanted != set(sizes):
            given = ", ".join(sorted(sizes)) or "none"
            raise ArgumentError(f"memory: expected the sizes {', '.join(sorted(wanted)) or '(none)'}, got {given}")
        return self._memory(sizes)

    def time_evaluator(
        self, name: str | None = None, dev: object = None, number: int = 10, repeat: int = 1, min_repeat_ms: float = 0
    ) -> TimeEvaluator:
        """Return a callable that runs the kernel on given arguments and measures it.

        One unmeasured call, then `repeat` samples, each the mean of `number` calls, or of as many as take
        `min_repeat_ms` milliseconds. `dev` is accepted for classic code and not used.
        """
        return TimeEvaluator(self if name is None else self[name], number, repeat, min_repeat_ms, self._stopwatch)

    def profile(self, *args: Any, repeat: int = 5) -> Any:
        """Run the kernel on arguments like those of a call, and tell where its time goes: a `Profile`, which prints.

        A build of it with clocks tells the time of each loop nest, beside the operations and bytes of that, the limit
        of this machine for them and what binds it; then what would help. `save_trace(path)` writes a run for Perfetto,
        `to_json()` gives data. Outputs are written as in a call. See `tensorlang.profiling.profile`.

        TargetError for kernels of GPUs and of the interpreter, and for those that call Python.
        """
        self._profiled = lookup(__name__, "profile")(self, args, repeat)
        return self._profiled

    def warnings(self, sizes: Mapping[str, int] | None = None) -> tuple[Any, ...]:
        """What would make the kernel slow, as far as its loops tell, each with a step that would help; nothing is run.

        Scalar inner loops, gathers, single threads, stages that are computed again, tiles that no cache holds. `sizes`
        are those of symbolic extents (512 else). TargetError for kernels of GPUs and of the interpreter.
        """
        found: tuple[Any, ...] = lookup(__name__, "warnings_of")(self, sizes)
        return found

    def _repr_html_(self) -> str:
        """What a notebook shows: arguments, loops, the assembly with its hottest loop marked, and the roofline of the
        last profile.
        """
        from tensorlang.runtime.page import executable_html

        return executable_html(self, self._profiled.roofline if self._profiled else "")

    def __repr__(self) -> str:
        params = ", ".join(str(p) for p in self.signature)
        return f"Executable({self.entry_name}({params}), target={str(self.target)!r})"


def _tested(entry: Callable[..., Any], facts: Sequence[FactCheck], always: bool) -> Callable[..., Any]:
    """An entry that tests facts first; arguments of the wrong number or kind are left to the entry to refuse."""

    def tested(*args: Any, **named: Any) -> Any:
        if always or config.get("check"):
            for fact in facts:
                if fact.position < len(args):
                    fact(args[fact.position])
        return entry(*args, **named)

    return opaque(tested)


def _entry(launch: Launch, check: ArgumentCheck, fast: Fast | None, returned: Returned) -> Callable[..., Any]:
    """What a call runs. With a fast entry, other kinds of arrays become plain ones and try it once more."""

    def checked(*args: Any, **named: Any) -> Any:
        if named:
            check.refuse_names(named)
        if returned.lacking(check, len(args)):
            every, made = returned.completed(check, args)
            checked(*every)
            return made
        arrays, sizes = check(args)
        if max(sizes, default=0) < _LONG or not check.writes_nothing(arrays):
            launch(arrays, sizes)
        return None

    if fast is None:
        return opaque(checked)

    def converted(*args: Any, **named: Any) -> Any:
        if named:
            check.refuse_names(named)
        if returned.lacking(check, len(args)):
            return checked(*args)
        plain = plain_arrays(args)
        if plain is None:
            return checked(*args)
        try:
            return quick(*plain)
        except ArgumentError:
            return checked(*args)  # in the words of what was passed

    quick = fast(converted)
    return quick
