"""LLVM itself: from IR text to objects and assembly, and objects to callable addresses.

The only module that imports llvmlite. LLVM's loop and SLP vectorisers stay off: the schedule decides vectors. What else
was tried in place of these levels is in docs/design/019-compile-time.md.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import llvmlite
import llvmlite.binding as llvm
from llvmlite.binding.newpassmanagers import NewPassManager

from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError, TargetError
from tensorlang.target.llvm.host import CODEGEN_LEVEL, SPEED_LEVEL, Host, Machine, this_cpu
from tensorlang.target.llvm.image import Library, image_of, load_image
from tensorlang.target.llvm.sources import check_source, defined, link_apart

_libraries = itertools.count()
_LIBRARIES_OF_A_LINKER = 32
"""A linker never forgets a library that was unloaded, 9 KiB each; it goes when all of its libraries have gone."""

# All targets: assembly for other machines comes from the same wheel.
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()


def host() -> Host:
    """What LLVM says of this machine; `llvm.host` remembers it."""
    version = f"llvmlite {llvmlite.__version__} llvm {llvm.llvm_version_info}"
    features = frozenset(name for name, present in llvm.get_host_cpu_features().items() if present)
    return Host(version, llvm.get_process_triple(), llvm.get_host_cpu_name(), features)


def known_features() -> frozenset[str]:
    """The names of all features of this machine's architecture."""
    return frozenset(llvm.get_host_cpu_features())


def compile_object(text: str, machine: Machine, sources: Sequence[str] = (), called: Collection[str] = ()) -> bytes:
    """Optimise LLVM IR text, and return an object file. It may call the functions `called` of the texts `sources`."""
    target_machine = _target_machine(machine)
    return bytes(target_machine.emit_object(_optimised(text, target_machine, sources, called)))


def assembly(text: str, machine: Machine, sources: Sequence[str] = (), called: Collection[str] = ()) -> str:
    """Optimise LLVM IR text, and return assembly. It may call the functions `called` of the texts `sources`."""
    target_machine = _target_machine(machine)
    return str(target_machine.emit_assembly(_optimised(text, target_machine, sources, called)))


@dataclass(frozen=True, slots=True)
class Part:
    """A module of a library: its text, and the texts `sources` of which it calls the functions `called`."""

    text: str
    sources: Sequence[str] = ()
    called: Collection[str] = ()


def compile_library(parts: Sequence[Part], machine: Machine, hidden: Collection[str], pic: bool = True) -> bytes:
    """Link parts to one module, optimise it, and return an object file; what is `hidden` is for the parts alone.

    Functions with a CPU and features of their own among their attributes are compiled for those.
    """
    _assemblers()
    target_machine = _target_machine(machine, pic)
    context = llvm.create_context()
    first, *others = (_linked(part.text, target_machine, part.sources, part.called, context) for part in parts)
    for other in others:
        first.link_in(other)
    for held in (*first.functions, *first.global_variables):
        if held.name in hidden and not held.is_declaration:
            held.linkage = "internal"
    return bytes(target_machine.emit_object(_passed(first, target_machine)))


@cache
def _assemblers() -> None:
    """Inline assembly, which only this machine's own code has, wants an assembler."""
    llvm.initialize_native_asmparser()


def missing_symbols(names: Iterable[str], sources: Sequence[str]) -> list[str]:
    """The functions that neither LLVM IR text defines nor a library of this process holds."""
    process, given = ctypes.CDLL(None), defined_by(sources)
    return sorted(n for n in names if n not in given and not hasattr(process, n))


def defined_by(sources: Sequence[str]) -> frozenset[str]:
    """The names that LLVM IR texts define; TargetError for one that cannot be read or linked."""
    context = llvm.create_context()
    return defined([_parsed_source(text, context) for text in sources])


def load(code: bytes, exports: Sequence[str], imports: Mapping[str, int]) -> Library:
    """Link an object into this process; `imports` gives addresses to its undefined symbols."""
    image = image_of(code)
    if image is not None:
        return load_image(image, exports, imports)
    builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
    for name in exports:
        builder.export_symbol(name)
    for name, address in imports.items():
        builder.import_symbol(name, address)
    number = next(_libraries)
    try:
        tracker = builder.link(_linker(number // _LIBRARIES_OF_A_LINKER), f"tensorlang{number}")
    except RuntimeError as error:
        raise InternalError(f"a compiled kernel does not link: {error}") from error
    return Library({name: tracker[name] for name in exports}, tracker)


@cache
def _target_machine(machine: Machine, pic: bool = True) -> Any:
    triple = machine.triple or llvm.get_process_triple()
    try:
        target = llvm.Target.from_triple(triple)
    except RuntimeError as error:
        raise TargetError(f"LLVM does not know the triple {triple!r}: {error}") from None
    return target.create_target_machine(
        cpu=machine.cpu,
        features=machine.features,
        opt=CODEGEN_LEVEL,
        reloc="pic" if pic else "static",
        codemodel="default",
    )


@lru_cache(maxsize=1)
def _linker(number: int) -> Any:
    native = Machine("", *_native())
    # JITLink puts an object's sections side by side; the older linker's may lie beyond what offsets of 32 bits reach.
    return llvm.create_lljit_compiler(_target_machine(native), use_jit_link=True, suppress_errors=False)


def _native() -> tuple[str, str]:
    name, features = this_cpu()
    return name, ",".join(f"+{f}" for f in sorted(features))


def _parsed_source(text: str, context: Any) -> Any:
    try:
        module = llvm.parse_assembly(text, context)
    except (RuntimeError, ValueError) as error:
        raise TargetError(f"LLVM cannot read the LLVM IR that was given as source: {error}") from None
    check_source(module)
    return module


def _optimised(text: str, target_machine: Any, sources: Sequence[str], called: Collection[str]) -> Any:
    context = llvm.create_context()  # the global one would keep every constant and every loop's name
    return _passed(_linked(text, target_machine, sources, called, context), target_machine)


def _linked(text: str, target_machine: Any, sources: Sequence[str], called: Collection[str], context: Any) -> Any:
    """The module of a text, with its sources linked to it."""
    try:
        module = llvm.parse_assembly(text, context)
        module.triple = target_machine.triple
        module.data_layout = str(target_machine.target_data)
        module.verify()
    except RuntimeError as error:
        raise InternalError(f"LLVM refuses the generated code: {error}") from error
    others = [_parsed_source(source, context) for source in sources]
    for other in others:
        other.triple, other.data_layout = module.triple, module.data_layout
    try:
        link_apart(module, others, called)
    except RuntimeError as error:
        raise TargetError(f"the LLVM IR that was given as source does not link to the kernel: {error}") from None
    return module


def _passed(module: Any, target_machine: Any) -> Any:
    """The module, optimised."""
    options = llvm.create_pipeline_tuning_options(speed_level=SPEED_LEVEL)
    options.loop_vectorization = options.slp_vectorization = options.loop_interleaving = False
    options.loop_unrolling = True
    builder = llvm.create_pass_builder(target_machine, options)
    passes = builder.getModulePassManager()
    try:
        passes.run(module, builder)
    finally:  # what llvmlite would do, were its classes derived from in another order: 60 KiB of passes a build
        NewPassManager._dispose(passes)
        passes.detach()
    return module
