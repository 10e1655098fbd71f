"""Compiled kernels as data, and how they come into this process: no emitter is needed for that."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import TargetError
from tensorlang.ir.overflow import SizeCheck
from tensorlang.ir.stmt import CallPython, Kernel
from tensorlang.runtime import cpython, exchange, openmp, threads
from tensorlang.runtime.arguments import Signature
from tensorlang.runtime.executable import Executable, Fast, Launch
from tensorlang.runtime.opaque import opaque
from tensorlang.target.llvm.image import Image, Library, image_of, load_image
from tensorlang.target.llvm.launch import CompiledLaunch
from tensorlang.target.llvm.reader import learning
from tensorlang.target.spec import Target


@dataclass(frozen=True, slots=True)
class Object:
    """A compiled kernel, as data: the kernel without its body, the object or its image, and what its symbols are.

    `limit`: up to which sizes its index arithmetic is exact; `order`: what its entry takes, arrays and sizes.
    """

    kernel: Kernel
    code: bytes | Image
    symbol: str
    entry: str | None
    limit: int
    calls: tuple[CallPython, ...]
    imports: frozenset[str]
    messages: tuple[str, ...]
    order: tuple[str, ...]


def unpacked(packed: bytes, target: Target) -> Executable:
    """An executable without sources."""
    found: Object = pickle.loads(packed)
    launch, fast = load(found, target, found.kernel.params)
    exact = SizeCheck(found.kernel, found.limit, whole=False)
    return Executable(found.kernel, target, launch, fast=fast, exact=exact)


def order_of(signature: Signature) -> tuple[str, ...]:
    """What a caller passes, by text: a size is an int32 where the caller declared it, and an index in the kernel."""
    return tuple(map(str, signature))


def load(
    found: Object, target: Target, signature: Signature, outside: Mapping[str, int] | None = None
) -> tuple[CompiledLaunch, Fast | None]:
    """Link an object, and wrap it: the checked launch, and the fast entry if it has one for such calls.

    `outside`: the addresses of functions that it calls, and that are not of this process.
    """
    entry = found.entry
    exports = [found.symbol] if entry is None else [found.symbol, entry]
    library = _loaded(found.code, exports, _imports(found.imports, target.cores) | dict(outside or {}))
    launch = CompiledLaunch(found.kernel, library, found.symbol, found.calls, found.messages)
    if entry is None or found.order != order_of(signature):
        return launch, None
    address, name = library.addresses[entry], found.kernel.name
    return launch, lambda checked: cpython.builtin(address, opaque(learning(checked)), launch.fail, name)


def packed(found: Object) -> bytes:
    """All that another process of this machine needs to call a kernel, without LLVM where its object has an image."""
    image = None if isinstance(found.code, Image) else image_of(found.code)
    return pickle.dumps(found if image is None else replace(found, code=image))


def _loaded(code: bytes | Image, exports: Sequence[str], imports: Mapping[str, int]) -> Library:
    if isinstance(code, Image):
        return load_image(code, exports, imports)
    from tensorlang.target.llvm import engine

    return engine.load(code, exports, imports)


def _imports(symbols: frozenset[str], cores: int) -> dict[str, int]:
    """The addresses of the symbols that a module leaves open; OpenMP is opened only when one is its."""
    known = cpython.addresses() | exchange.addresses() | threads.addresses()
    if symbols & set(openmp.SYMBOLS):
        known |= openmp.addresses(cores)
    if symbols - set(known):
        known |= cpython.numbers()
    return {symbol: known[symbol] for symbol in symbols}


def elsewhere(target: Target) -> Launch:
    def launch(arrays: object, sizes: object) -> None:
        raise TargetError(f"this executable was built for {target}, which this machine cannot run; see source('asm')")

    return launch
