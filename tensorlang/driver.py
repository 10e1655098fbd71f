"""The one road from a schedule to something that runs: `lower` shows the loops, `build` compiles them."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError, InternalError, ScheduleError, shown
from tensorlang.ir.expr import Buffer, Var
from tensorlang.ir.printer import kernel_text
from tensorlang.ir.stmt import Kernel
from tensorlang.location import caller
from tensorlang.lowering.barrier_notes import BarrierNote
from tensorlang.lowering.dump import Dump
from tensorlang.lowering.pipeline import barriers_of, lower_state
from tensorlang.names import Explained
from tensorlang.polyhedral.nest import nest_text
from tensorlang.runtime.arrays import as_array
from tensorlang.runtime.executable import Executable
from tensorlang.runtime.facts import FactCheck
from tensorlang.runtime.returning import made_by_calls
from tensorlang.schedule import Schedule, create_schedule
from tensorlang.schedule.arguments import (
    held,
    needed,
    parameters,
    with_outputs,
    without_others,
    without_some,
)
from tensorlang.schedule.derive import derive
from tensorlang.schedule.history import best_if_any, build_best, build_in_use
from tensorlang.schedule.proposals.replayed import Refusal
from tensorlang.target.backend import RestoringBackend, backend, begun, with_limits
from tensorlang.target.detect import parse
from tensorlang.target.spec import Target
from tensorlang.te.array_buffer import check_buffer
from tensorlang.te.operation import PlaceholderOp, Tensor

if TYPE_CHECKING:
    from tensorlang.export.writing import Exported


@dataclass(frozen=True)
class Lowered(Explained):
    """The loops of a schedule for its arguments; prints as the loop nest. `build` compiles it for any target."""

    kernel: Kernel
    schedule: Schedule
    args: tuple[Any, ...]
    target: Target
    library: bool = False  # the schedule is the library's, which makes another one for another machine

    @property
    def barriers(self) -> tuple[BarrierNote, ...]:
        """Why threads of a GPU wait for each other here: for each barrier two threads, and the cell they meet in."""
        return barriers_of(self.schedule.state, self.target)

    def export(
        self,
        path: str | Path,
        formats: Sequence[str] = ("so", "o", "a", "h"),
        threads: str = "host",
        faces: Sequence[str] = ("c",),
        isas: Sequence[str] = (),
        check: Sequence[Any] | None = None,
        linker: str | None = None,
    ) -> Exported:
        """Write the kernel as files that C, and all that calls C, can use without Python; return what was written.

        `path` is that of the files without their ending, and its last part the name of the C function: `out/layer`
        gives `layer.so` (a shared library), `layer.o`, `layer.a`, `layer.h` as `formats` says, and `layer.json`;
        "cmake" adds `layerConfig.cmake`, "c" a program `layer_test.c` that runs the kernel on the arrays `check` (those
        of a call, stored in `layer_data`), compares with what the unscheduled program makes of them, and times it.
        `threads`: "host" lets the caller run the tasks of a parallel loop, one after the other unless it says how;
        "openmp" takes the threads of libgomp; "serial" splits no loop.

        `faces` beside "c": "tvm_ffi" lets `tvm_ffi.load_module` call it with tensors of NumPy, PyTorch or JAX, "xla"
        lets `jax.ffi` call it, "onnxruntime" makes it an operator of ONNX Runtime, `layer` of the domain
        `tensorlang.layer`; the file needs none of them, and sizes are taken from shapes.

        `isas` are CPUs by name, as in ("x86-64-v4", "x86-64-v3"): the file holds a kernel for each, and the best that
        a CPU can run is picked when it is called. Each has the same steps, or the library's schedule for that machine
        where the kernel has the library's, or has steps that the machine cannot run. Without names it is compiled for
        the kernel's own target, and says -2 on a CPU that lacks something. `linker`: "cc", "ld.lld" or "ziglang"; else
        the first that is there. Where there is none, a warning (NoLinker) says how to make the shared library.

        ArgumentError for words that are none of these, TargetError for kernels that need Python, or a GPU.
        """
        from tensorlang.export.compiling import Request, compiled, refuse_target
        from tensorlang.export.variants import variants_of
        from tensorlang.export.writing import Choices, name_of, write

        refuse_target(self.target)
        how = Choices(tuple(formats), threads, tuple(faces), linker)
        _, signature = parameters(self.schedule, self.args)
        variants, left_out = variants_of(self, isas, self.elsewhere)
        asked = Request(name_of(path), signature, variants, _facts(self.schedule, signature), left_out)
        wanted = None if check is None else self._answer(list(check))
        return write(path, compiled(asked, how.threads, how.faces), how, wanted)

    def elsewhere(self, target: Target, anew: bool) -> Lowered:
        """The same program for another machine: with the same steps, or those that the library has for it."""
        from tensorlang.schedules.default import apply_forms

        made = self.schedule
        if anew:
            made = made.again(fresh=True)
            apply_forms(made, target)
        return lower(made, self.args, self.kernel.name, target=target)

    def _answer(self, arrays: list[Any]) -> list[Any]:
        """The arrays of a call as they are before it, then as the unscheduled program leaves them."""
        before = [as_array(a).copy() if not isinstance(a, int) else a for a in arrays]
        after = [a if isinstance(a, int) else a.copy() for a in before]
        build(self.schedule.again(fresh=True), self.args, target="llvm -num-cores=1")(*after)
        return [*before, *after]

    @property
    def pickled(self) -> None:
        """Nothing: a kernel that was built is pickled as its loops."""

    def script(self) -> str:
        """The loop nest as text, in tensorlang's notation."""
        return str(self)

    astext = script

    def show(self) -> None:
        """Print the loop nest."""
        print(self)

    def __str__(self) -> str:
        return kernel_text(self.kernel)

    __repr__ = __str__


def lower(
    s: Schedule,
    args: Sequence[Any],
    name: str = "main",
    binds: Mapping[Any, Any] | None = None,
    simple_mode: bool = True,
    target: str | Target | None = None,
) -> Lowered:
    """Return the loop nest of a schedule, as it is handed to the target; `print` it.

    `args`: the inputs and outputs (tensors), and symbolic sizes if the caller passes them. What is computed on the way
    becomes an output when it is among them, an output that is not is kept inside, and inputs and sizes that nobody
    needs may be there. `binds`: buffers of tensors (`te.decl_buffer`), which are compared with these. `simple_mode` is
    accepted for classic te's sake. Raises DefinitionError when `args` do not fit the program.
    """
    _check_binds(binds)
    s = without_others(with_outputs(_check_schedule(s), args), args)
    params, _ = parameters(s, args)
    _check_name(name)
    chosen = parse(target)
    return Lowered(_lowered(s, params, name, chosen, Dump(name)), s, tuple(args), chosen)


def _check_binds(binds: Mapping[Any, Any] | None) -> None:
    """The buffers that classic programs bind to tensors have the layout of arrays, which is the only one."""
    for tensor, buffer in (binds or {}).items():
        if not isinstance(tensor, Tensor):
            raise DefinitionError(f"binds maps tensors to buffers, got {shown(tensor)}", caller())
        check_buffer(tensor.name, tensor.shape, tensor.dtype, buffer)


def try_lowering(s: Schedule, target: Target) -> Kernel:
    """The loops of a schedule with arguments in the program's order, which a build uses; raises what `build` would."""
    return _lowered(s, needed(s.program), "main", target, Dump("main"))


def _lowered(s: Schedule, params: Sequence[str], name: str, target: Target, dump: Dump) -> Kernel:
    """The kernel of a schedule; what refuses it tells the steps that led there."""
    try:
        return lower_state(s.state, params, name, with_limits(target), dump)
    except ScheduleError as error:
        if error.asked:
            raise
        asked, steps, found = f"build {name} for {target}", s.trace.to_python().splitlines(), error
        wanted = Refusal(s.again(), "", then=lambda other: _lowered(other, params, name, target, dump))
        raise type(error)(
            asked,
            error.why,
            where=caller(),
            witness=error.witness,
            schedule=steps,
            suggested=lambda: found.suggested,
            replay=wanted.sorted,
        ) from None


def create_prim_func(ops: Sequence[Tensor]) -> Lowered:
    """Return the unscheduled loops over these tensors, inputs and outputs, as arguments in this order.

    What is computed and listed is an output; `build` makes the function run.

        >>> from tensorlang import te
        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: A[i] * 2, name="B")
        >>> te.create_prim_func([A, B]).kernel.outputs
        ('B',)
    """
    computed = [t for t in ops if not (isinstance(t, Tensor) and isinstance(t.op, PlaceholderOp))]
    if not computed:
        raise DefinitionError("create_prim_func needs an output: a tensor that is computed", caller())
    return lower(create_schedule(computed), ops)


def build(
    s: Schedule | Lowered | Sequence[Tensor],
    args: Sequence[Any] | None = None,
    target: str | Target | None = None,
    target_host: str | None = None,
    name: str = "main",
    schedule: str | None = None,
    binds: Mapping[Any, Any] | None = None,
) -> Executable:
    """Compile a schedule for a target (`llvm`, `llvm -mcpu=...`, `interpreter`; None: this machine's CPU).

    The result takes the arrays of `args` in order: NumPy arrays or any CPU DLPack tensor, outputs written in place. Of
    several outputs those that `args` lack are kept inside.
    What `lower` and `te.create_prim_func` return has its `args`, and is compiled for this target from its schedule.
    `target_host` is accepted for classic te's sake; `binds` as in `lower`.

    `build([A, B, C], schedule=...)` takes inputs and outputs in the order of the arrays, or a schedule without a step:
    `"default"` shapes the loops as `topi.schedule` does, by what the program reads; `"best"` takes the best tuned
    record, where records are in use (`autotune.apply_history_best`), then in the default store, and never builds
    anything else; `"auto"` takes that record if there is one, and is `"default"` otherwise. Without the word, the loops
    are as the schedule has them; one without a step takes the best record of its program where records are in use. Of a
    record that is refused, or cannot be built, a warning (`autotune.RecordSkipped`) says why, and the next best is
    taken.

    Raises DefinitionError when `args` do not fit the program, TargetError when the target cannot run it, and
    RecordError when there is no best schedule; it names the nearest record, or those that were refused.
    """
    _check_name(name)
    _check_binds(binds)
    if isinstance(s, Lowered):
        args = args or s.args
        s = s.schedule
    s, args = (_check_schedule(s), args) if schedule is None else _without_steps(s, args, schedule)
    if args is None:
        names = ", ".join(needed(s.program))
        raise DefinitionError(
            f"build needs args: the inputs and outputs of the schedule, as in build(s, [{names}])", caller()
        )
    s = without_some(with_outputs(s, args), args)
    parameters(s, args)  # what is wrong with the arguments is no fault of any record
    chosen = parse(target)
    return _BUILDERS[schedule](s, chosen, partial(_compiled, args=args, target=chosen, name=name))


def _build_default(s: Schedule, target: Target, compiled: Callable[[Schedule], Executable]) -> Executable:
    """Build a program in the forms that its groups have."""
    from tensorlang.schedules.default import apply_forms  # a build by hand does without all forms

    shaped = s.again()
    apply_forms(shaped, target)
    made = compiled(shaped)
    if isinstance(made.origin, Lowered):
        made.origin = replace(made.origin, library=True)
    return made


def _build_auto(s: Schedule, target: Target, compiled: Callable[[Schedule], Executable]) -> Executable:
    """Build the best record of a program, or its forms where there is none."""
    made: list[Executable] = []
    known = best_if_any(s, target, "build", lambda found: made.append(compiled(found)))
    return _build_default(s, target, compiled) if known is None else made[-1]


_BUILDERS: Mapping[str | None, Callable[[Schedule, Target, Callable[[Schedule], Executable]], Executable]] = {
    None: build_in_use,
    "default": _build_default,
    "auto": _build_auto,
    "best": build_best,
}


def _compiled(s: Schedule, args: Sequence[Any], target: Target, name: str) -> Executable:
    """The executable of a schedule as it is."""
    return build_later(s, args, target, name)()


def build_later(s: Schedule, args: Sequence[Any], target: Target, name: str) -> Callable[[], Executable]:
    """Lower a schedule as it is; what is returned compiles it, in any thread, while others are lowered here.

    Raises what `build` raises, here or there.
    """
    s = with_outputs(s, args)
    params, signature = parameters(s, args)
    dump = Dump(name)
    dump.write("trace", "py", s.trace.to_python)
    dump.write("program", "txt", lambda: s.program.text)
    dump.write("schedule", "tree", partial(_schedule_tree, s))
    kernel = _lowered(s, params, name, target, dump)
    finish, facts = begun(kernel, target, signature), _facts(s, signature)

    def executable() -> Executable:
        made = finish()
        made.origin = Lowered(kernel, s, tuple(args), target)
        for form in made.source_forms:
            if form != "loops":
                dump.write("target", form, partial(made.source, form))
        made.require(facts, always=s.tests_assumptions)
        return made.returns(made_by_calls(signature, kernel.outputs, s.program.inputs))

    return executable


def packed_whole(made: Executable) -> bytes:
    """A kernel that was built here, for another process of this machine: its object, its loops and its schedule."""
    if made.packed is None or not isinstance(made.origin, Lowered):
        raise InternalError(f"{made.entry_name} was not built for this machine")
    return pickle.dumps((made.packed(), made.origin))


def unpacked_whole(data: bytes) -> Executable:
    """The kernel that another process has built, as if it had been built here."""
    packed, origin = pickle.loads(data)
    found, (_, signature) = backend(origin.target.kind), parameters(origin.schedule, origin.args)
    assert isinstance(found, RestoringBackend)
    made = found.restore(packed, origin.kernel, origin.target, signature)
    made.origin, made.packed = origin, lambda: packed
    made.require(_facts(origin.schedule, signature), always=origin.schedule.tests_assumptions)
    return made.returns(made_by_calls(signature, origin.kernel.outputs, origin.schedule.program.inputs))


def _without_steps(s: Any, args: Sequence[Any] | None, schedule: str) -> tuple[Schedule, Sequence[Any] | None]:
    """The program that is to be scheduled, and its arguments."""
    if schedule not in _BUILDERS:
        raise DefinitionError(f"schedule is 'default', 'auto', 'best', or left out, got {shown(schedule)}", caller())
    if isinstance(s, Schedule):
        if s.trace.steps:
            text = f"schedule={schedule!r} is about all steps, and this schedule has {len(s.trace.steps)} already; "
            raise DefinitionError(f"{text}leave it out, or pass the tensors", caller())
        return s, args
    if not isinstance(s, list | tuple) or not s or not all(isinstance(t, Tensor) for t in s):
        text = (
            f"schedule={schedule!r} takes the tensors, inputs and outputs, or a schedule without a step, got {shown(s)}"
        )
        raise DefinitionError(text, caller())
    computed = [t for t in s if not isinstance(t.op, PlaceholderOp)]
    if not computed:
        raise DefinitionError("build needs an output: a tensor that is computed", caller())
    made = create_schedule(computed)
    inputs = {made.buffer_of(t) for t in s if isinstance(t.op, PlaceholderOp)}
    return made, args or [t for t in s if t not in computed or held(made.program, made.buffer_of(t)) not in inputs]


def _facts(s: Schedule, signature: Sequence[Buffer | Var]) -> list[FactCheck]:
    """What the schedule assumes about the arguments of a call."""
    places = {arg.name: k for k, arg in enumerate(signature) if isinstance(arg, Buffer)}
    return [FactCheck(f.kind, f.array, places[f.array], f.low, f.high) for f in s.state.facts if f.array in places]


def _schedule_tree(s: Schedule) -> str:
    derived = derive(s.state)
    return nest_text(derived.tree, derived.scop)


def _check_name(name: object) -> None:
    """A kernel may have any name that C can hold: neither half a character of UTF-16 nor a NUL."""
    if not isinstance(name, str) or any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in name):
        raise DefinitionError(f"the name of a kernel is text in UTF-8 without a NUL, got {shown(name)}", caller())


def _check_schedule(s: object) -> Schedule:
    if isinstance(s, Schedule):
        return s
    tensors = isinstance(s, list | tuple) and any(isinstance(t, Tensor) for t in s)
    advice = "; build(tensors, schedule='auto') takes a tuned one, or the library's" if tensors else ""
    raise DefinitionError(f"expected a schedule (te.create_schedule), got {shown(s)}{advice}", caller())
