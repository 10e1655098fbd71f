"""Exported kernels in this process again, and the proof of their schedules from their metadata."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from tensorlang.dataclass import dataclass
from tensorlang.errors import RecordError, TargetError, TensorlangError
from tensorlang.export.metadata import FIRST_KEY, NETWORK
from tensorlang.export.steps import calls_of, check_steps
from tensorlang.files import is_file
from tensorlang.ir.expr import Buffer
from tensorlang.ir.stmt import Kernel, Seq
from tensorlang.names import lookup
from tensorlang.runtime.executable import Executable
from tensorlang.runtime.facts import FactCheck
from tensorlang.runtime.threads import default_threads
from tensorlang.schedule import Schedule
from tensorlang.schedule.recorded import replay_recorded
from tensorlang.schedule.schedule import schedule_of
from tensorlang.target.llvm.compiling import adapted
from tensorlang.target.llvm.library.adapter import RUN, WORKSPACE, emit_adapter
from tensorlang.target.llvm.library.front import ABI, NO_VARIANT
from tensorlang.target.spec import Target
from tensorlang.te.data import from_data
from tensorlang.te.program import Program


@dataclass(frozen=True)
class _Origin:
    """A library that a kernel is from: it cannot be exported again, and is pickled as its path."""

    path: str

    @property
    def pickled(self) -> tuple[Callable[..., Any], tuple[str]]:
        return load, (self.path,)

    def export(self, path: str | Path, **how: Any) -> None:
        raise TargetError(f"{self.path} is exported already; export it for others where tensorlang.build makes it")


def load(path: str | Path) -> Any:
    """The kernel of a shared library that `kernel.export` wrote: `f = tensorlang.load("out/layer.so"); f(x, y)`.

    It takes the arrays that the kernel took where it was built, or makes and returns its outputs, and tests them as
    usual. Its parallel loops run on the threads of this process, its scratch memory is that of the calling thread. Of a
    library that `model.export` wrote it is a model: `y = model(x)`, whose weights are mapped from the file beside it.
    What is loaded is machine code, which can do anything: load what you trust.

    RecordError for a file that is no exported kernel, or whose weights are not its own, TargetError where this CPU has
    none of its instruction sets.
    """
    where = Path(path).resolve()
    known = read_metadata(where)
    try:
        library = ctypes.CDLL(str(where))
    except OSError as error:
        raise TargetError(f"{path} cannot be loaded: {error}") from None
    try:
        kernel = _loaded(where, known, library)
        return kernel if NETWORK not in known else lookup(__name__, "network_of_library")(kernel, known[NETWORK], where)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, TargetError):
            raise
        raise RecordError(f"the metadata of {path} lack something: {error}") from error


def _loaded(path: Path, known: Mapping[str, Any], library: ctypes.CDLL) -> Executable:
    name = known["name"]
    params, sizes, signature, outputs = from_data(known["call"])
    kernel = Kernel(name, params, sizes, outputs, Seq(()))
    target = _here(known)
    addresses = {
        word: ctypes.cast(getattr(library, f"{name}_{part}"), ctypes.c_void_p).value or 0
        for word, part in ((RUN, "run"), (WORKSPACE, "workspace_bytes"))
    }
    _check_cpu(library, name, len(sizes))
    texts = {int(code): text.removeprefix(f"{name}: ") for code, text in known["messages"].items()}
    messages = tuple(texts[code] for code in sorted(texts) if code > 0)
    limit = min((bounds["max"] for bounds in known["sizes"].values()), default=0)
    arrays = tuple(a for a in signature if isinstance(a, Buffer))
    made = adapted(kernel, emit_adapter(kernel, arrays, target), target, addresses, messages, limit, signature)
    made.origin = _Origin(str(path))
    made.keeps(library)
    made.has_loops = False
    return made.returns(known.get("returns", ())).require(
        [FactCheck(*fact) for fact in known["facts"]], always=known["tests_facts"]
    )


def _here(known: Mapping[str, Any]) -> Target:
    """The target that the library was exported for, with the threads of this machine."""
    target = Target.from_json(known["variants"][0]["machine"])
    return replace(target, triple="", cpu="", features="", cores=default_threads())


def _check_cpu(library: ctypes.CDLL, name: str, sizes: int) -> None:
    """TargetError where this CPU has none of the instruction sets of a library."""
    ask = getattr(library, f"{name}_workspace_bytes")
    ask.restype, ask.argtypes = ctypes.c_int64, [ctypes.c_int64] * (sizes + 1)
    if ask(*[0] * sizes, 1) == NO_VARIANT:
        raise TargetError(f"{name} was exported for CPUs that have what this one lacks; export it with isas=(...)")


def read_metadata(path: Path) -> dict[str, Any]:
    """The metadata of an exported kernel, from its `.json`, or from the library, archive or object itself."""
    if not is_file(path):
        raise RecordError(f"no such file: {path}")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    start = data.find(f'{{"{FIRST_KEY}":'.encode())
    text = data if path.suffix == ".json" else data[start : data.find(b"\0", start)] if start >= 0 else b""
    try:
        known = json.loads(text)
    except ValueError:
        known = None
    if not isinstance(known, dict) or FIRST_KEY not in known:
        raise RecordError(f"{path} is no kernel that tensorlang has exported")
    if known[FIRST_KEY] != ABI:
        raise RecordError(f"{path} has the ABI {known[FIRST_KEY]!r}, and this version of tensorlang reads {ABI}")
    return known


@dataclass(frozen=True)
class Proof:
    """The schedule of an instruction set, proven again, and the target that it was lowered for."""

    target: Target
    schedule: Schedule
    kernel: str = ""

    @property
    def name(self) -> str:
        """The kernel, of a network, and the target."""
        return f"{self.kernel} for {self.target}" if self.kernel else str(self.target)


def prove(path: Path) -> list[Proof]:
    """Prove again what the metadata of an exported kernel say: that its schedules are legal for its program.

    Nothing of the file is run. ScheduleError for a schedule that is not legal, RecordError for metadata that do not fit
    together, or for a file beside it that is not the one that was exported.
    """
    known = read_metadata(path)
    try:
        if NETWORK not in known:
            found = _proven(path, _program(known["program"]), known["variants"])
        else:
            found = _proven_network(path, known[NETWORK])
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, TensorlangError):
            raise
        raise RecordError(f"the metadata of {path} lack something: {error}") from error
    _check_files(path, known)
    return found


def _proven(path: Path, program: Program, variants: Sequence[Mapping[str, Any]], kernel: str = "") -> list[Proof]:
    found: list[Proof] = []
    for variant in variants:
        target = Target.from_json(variant["machine"])
        made = replay_recorded(schedule_of(program), variant["trace"])
        if made.trace.to_python() != variant["schedule"]:
            raise RecordError(f"{path}: the steps of the schedule for {target} are not those that it shows")
        found.append(Proof(target, made, kernel))
    return found


def _proven_network(path: Path, network: Mapping[str, Any]) -> list[Proof]:
    """The schedules of all kernels; RecordError where what they pass on would be lost in between."""
    programs = [_program(kernel["program"]) for kernel in network["kernels"]]
    check_steps(network, programs)
    stages = {step["kernel"]: step["stage"] for step in reversed([*calls_of(network["steps"])])}
    return [
        proof
        for number, (kernel, program) in enumerate(zip(network["kernels"], programs, strict=True))
        for proof in _proven(path, program, kernel["variants"], stages.get(number, f"kernel {number}"))
    ]


def _program(data: Mapping[str, Any]) -> Program:
    if data["data"] is None:
        raise RecordError("the program holds code, such as Python functions, and its file has no proof of it")
    program = from_data(data["data"])
    if not isinstance(program, Program) or program.text != data["text"]:
        raise RecordError("the program is not the one that its text shows")
    return program


def _check_files(path: Path, known: Mapping[str, Any]) -> None:
    """RecordError for a file beside the metadata that was changed since."""
    for form, digest in known.get("sha256", {}).items():
        file = path.with_suffix(f".{form}")
        if file.is_file() and sha256(file.read_bytes()).hexdigest() != digest:
            raise RecordError(f"{file} is not the file that was exported with {path.name}")
