"""Several kernels as one of a library: a function that calls them in turn, with arrays in blocks that the caller gives.

To the functions around it a chain is a kernel: `PREFIX.run` and `PREFIX.bytes` are those of a variant. What its kernels
pass on lies at the front of the workspace, their scratch memory behind it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Buffer
from tensorlang.ir.stmt import Kernel, Seq
from tensorlang.target.llvm.arithmetic import binary
from tensorlang.target.llvm.library.calls import Caller, Step
from tensorlang.target.llvm.library.emit import compare, load, refuse
from tensorlang.target.llvm.library.variant import NO_WORKSPACE, emit_variant, needed_bytes, run_type
from tensorlang.target.llvm.text import INDEX, Function, Module, Value, literal
from tensorlang.target.spec import Target

BAD_WEIGHTS = -5
"""The code of a call whose weights are missing, or are not those that the library was written with."""
CODES = {
    BAD_WEIGHTS: "the weights are missing, not at a multiple of 64 bytes, or not those of this library",
}
SEAL_BYTES = 64
"""Weights begin with so many bytes that tell them from all others."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Calls of kernels in order, and loops of such calls.

    `arrays` are the arguments, those that are written by name in `outputs`. Weights are the last of them, begin with
    `seal`, and are in the library itself where they are `embedded`. `arena`: the bytes of what kernels pass on.
    """

    name: str
    arrays: tuple[Buffer, ...]
    outputs: tuple[str, ...]
    calls: tuple[Step, ...]
    arena: int
    seal: bytes = b""
    embedded: bytes = b""

    @property
    def kernel(self) -> Kernel:
        """What the functions of a library see of it: a kernel whose loops are elsewhere."""
        return Kernel(self.name, self.arrays, (), self.outputs, Seq(()))

    @property
    def symbol(self) -> str:
        """The name of the weights in the library, where they are embedded."""
        return f"{self.name}.weights"


def emit_chain(
    chain: Chain, kernels: Sequence[Kernel], target: Target, prefix: str, messages: list[str]
) -> tuple[list[Module], list[str]]:
    """The modules of a chain for one target, and the prefixes of its kernels, which are for the chain alone."""
    inner = [f"{prefix}.k{number}" for number in range(len(kernels))]
    made = [emit_variant(kernel, target, own, messages) for kernel, own in zip(kernels, inner, strict=True)]
    driver = Module(target, library=True)
    for kernel, own in zip(kernels, inner, strict=True):
        driver.declare(f"{own}.run", "i32", run_type(kernel))
        driver.declare(f"{own}.bytes", "{i64, i64}", "")
    if chain.embedded:
        driver.declarations[chain.symbol] = f"@{chain.symbol} = external constant [{len(chain.embedded)} x i8]"
    _bytes(driver, chain, prefix, inner)
    _run(driver, chain, prefix, inner)
    return [driver, *made], inner


def weights_text(chain: Chain) -> str:
    """The module that holds embedded weights, as LLVM IR."""
    import numpy as np

    pairs = np.frombuffer(b"".join(b"\\%02X" % byte for byte in range(256)), "S3")
    spelt = pairs[np.frombuffer(chain.embedded, np.uint8)].tobytes().decode("ascii")
    return f'@{chain.symbol} = constant [{len(chain.embedded)} x i8] c"{spelt}", align {SEAL_BYTES}\n'


def _bytes(module: Module, chain: Chain, prefix: str, inner: Sequence[str]) -> None:
    """The arena and the most that any kernel needs, for all tasks together and for each: `{i64, i64} ()`."""
    fn = Function(module, f"{prefix}.bytes", [])
    shared, each = literal(0, INDEX), literal(0, INDEX)
    for own in inner:
        one, piece, _ = needed_bytes(fn, own, [], literal(1, INDEX))
        shared, each = binary(fn, "max", shared, one), binary(fn, "max", each, piece)
    whole = binary(fn, "add", shared, literal(chain.arena, INDEX))
    pair = fn.op(f"insertvalue {{i64, i64}} undef, {whole.typed}, 0")
    pair = fn.op(f"insertvalue {{i64, i64}} {pair}, {each.typed}, 1")
    fn.do(f"ret {{i64, i64}} {pair}")
    fn.finish("{i64, i64}")


def _run(module: Module, chain: Chain, prefix: str, inner: Sequence[str]) -> None:
    """`i32 (arrays..., threads, runner, user, workspace)`: the calls in turn, up to one that fails."""
    arrays = [f"ptr %p{k}" for k in range(len(chain.arrays))]
    rest = ["i64 %threads", "ptr %runner", "ptr %user"]
    fn = Function(module, f"{prefix}.run", [*arrays, *rest, "ptr %workspace"])
    _check_workspace(fn, prefix)
    weights = f"@{chain.symbol}" if chain.embedded else f"%p{len(arrays) - 1}"
    if chain.seal and not chain.embedded:
        _check_seal(fn, weights, chain.seal)
    scratch = f"ptr {fn.field('%workspace', chain.arena)}"
    Caller(fn, inner, weights, [*rest, scratch]).emit(chain.calls)
    fn.do("ret i32 0")
    fn.finish("i32")


def _check_workspace(fn: Function, prefix: str) -> None:
    """A workspace where one is needed, at a multiple of 64."""
    _, _, total = needed_bytes(fn, prefix, [], literal(1, INDEX))
    with fn.when(binary(fn, "lt", literal(0, INDEX), total)):
        place = fn.value("ptrtoint ptr %workspace to i64", INDEX)
        odd = fn.value(f"and i64 {place.text}, 63", INDEX)
        missing = compare(fn, "eq", "i64", place.text, "0")
        wrong = fn.value(f"or {missing.typed}, {compare(fn, 'ne', 'i64', odd.text, '0').text}", "bool")
        refuse(fn, wrong, f"i32 {NO_WORKSPACE}")


def _check_seal(fn: Function, weights: str, seal: bytes) -> None:
    """The place of the weights and their first bytes, eight at a time, least first as on all our machines."""
    place = fn.op(f"ptrtoint ptr {weights} to i64")
    refuse(fn, compare(fn, "eq", "i64", place, "0"), f"i32 {BAD_WEIGHTS}")
    odd = fn.op(f"and i64 {place}, {SEAL_BYTES - 1}")
    refuse(fn, compare(fn, "ne", "i64", odd, "0"), f"i32 {BAD_WEIGHTS}")
    other = Value("false", "bool")
    for at in range(0, len(seal), 8):
        wanted = int.from_bytes(seal[at : at + 8], "little", signed=True)
        differs = compare(fn, "ne", "i64", load(fn, weights, at, "i64"), str(wanted))
        other = fn.value(f"or {other.typed}, {differs.text}", "bool")
    refuse(fn, other, f"i32 {BAD_WEIGHTS}")
