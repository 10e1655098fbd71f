"""The functions of a library that C calls: sizes checked, a kernel picked, workspace and runner handed down."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Buffer
from tensorlang.ir.stmt import Kernel
from tensorlang.target.llvm.arithmetic import binary
from tensorlang.target.llvm.library.emit import compare, load, refuse, text, word
from tensorlang.target.llvm.library.pick import emit_pick
from tensorlang.target.llvm.library.runner import emit_runner, most_threads
from tensorlang.target.llvm.library.variant import NO_WORKSPACE, needed_bytes, run_type
from tensorlang.target.llvm.text import INDEX, Function, Module, Value, literal

ABI = 1
NO_VARIANT, BAD_SIZE, BAD_HOST = -2, -3, -4
CODES = {
    NO_WORKSPACE: "no workspace, or one that does not begin at a multiple of 64 bytes",
    NO_VARIANT: "this CPU has none of the instruction sets that the kernel was compiled for",
    BAD_SIZE: "a size is negative, or larger than those that the kernel is exact for",
    BAD_HOST: f"the tl_host is of another ABI than {ABI}, or has a parallel_for and no number of threads",
}
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Face:
    """What all functions of a library share.

    `arrays` are the arguments in the caller's order; `kernel` names its own order and its sizes. `variants` are the
    prefixes of the kernels for each instruction set, best first, with the features that the CPU is asked for: None
    where it is not asked. `limit`: up to which sizes the kernels are exact.
    """

    name: str
    kernel: Kernel
    arrays: tuple[Buffer, ...]
    variants: tuple[tuple[str, frozenset[str] | None], ...]
    threads: str
    limit: int
    pointer_bytes: int = 8
    allocates: bool = True

    @property
    def sizes(self) -> list[Value]:
        """The size parameters."""
        return [Value(f"%n{k}", INDEX) for k in range(len(self.kernel.sizes))]

    @property
    def pointers(self) -> list[str]:
        """The array parameters, in the caller's order."""
        return [f"ptr %a{k}" for k in range(len(self.arrays))]

    @property
    def asks(self) -> bool:
        """Whether the CPU is asked what it has."""
        return any(features is not None for _, features in self.variants)

    @property
    def given(self) -> list[str]:
        """The parameters for arrays and sizes."""
        return [*self.pointers, *(v.typed for v in self.sizes)]


def emit_front(module: Module, face: Face, metadata: str, messages: dict[int, str]) -> None:
    """Add the functions of the C interface to a module; the kernels' own are declared."""
    name = face.name
    for prefix, _ in face.variants:
        module.declare(f"{prefix}.run", "i32", run_type(face.kernel))
        module.declare(f"{prefix}.bytes", "{i64, i64}", ", ".join(["i64"] * len(face.kernel.sizes)))
    if face.asks:
        emit_pick(module, f"{name}.pick", [features or frozenset() for _, features in face.variants])
    if face.threads == "openmp":
        emit_runner(module, f"{name}.openmp")
    _workspace_bytes(module, face)
    _run(module, face)
    _call(module, face)
    _constant(module, f"{name}_metadata", text(module, metadata))
    _message(module, f"{name}_message", messages)


def _constant(module: Module, name: str, pointer: str) -> None:
    fn = Function(module, name, [])
    fn.do(f"ret ptr {pointer}")
    fn.finish("ptr")


def _message(module: Module, name: str, messages: dict[int, str]) -> None:
    """The text of a code; never null."""
    fn = Function(module, name, ["i32 %code"])
    cases = " ".join(f"i32 {code}, label %c{k}" for k, code in enumerate(messages))
    fn.do(f"switch i32 %code, label %other [{cases}]")
    for k, words in enumerate(messages.values()):
        fn.start(f"c{k}")
        fn.do(f"ret ptr {text(module, words)}")
    fn.start("other")
    fn.do(f"ret ptr {text(module, 'no code of this kernel')}")
    fn.finish("ptr")


def _check_sizes(fn: Function, face: Face, result: str) -> None:
    for size in face.sizes:
        refuse(fn, compare(fn, "ugt", "i64", size.text, str(face.limit)), result)


def _each(fn: Function, face: Face, result: str, emit: Callable[[str], None]) -> None:
    """Append `emit(prefix)`, which returns, for the kernel of this CPU; `result` where there is none."""
    if not face.asks:
        emit(face.variants[0][0])
        return
    level = fn.op(f"call i32 @{face.name}.pick()")
    labels = [fn.fresh("level") for _ in face.variants]
    none = fn.fresh("none")
    cases = " ".join(f"i32 {k}, label %{label}" for k, label in enumerate(labels, 1))
    fn.do(f"switch i32 {level}, label %{none} [{cases}]")
    for label, (prefix, _) in zip(labels, face.variants, strict=True):
        fn.start(label)
        emit(prefix)
    fn.start(none)
    fn.do(f"ret {result}")


def _default_threads(fn: Function, face: Face) -> Value:
    return most_threads(fn) if face.threads == "openmp" else literal(1, INDEX)


def _or_default(fn: Function, face: Face, asked: Value) -> Value:
    """So many threads, or those of the default runner where it is 0 or less; one where no loop is split."""
    if face.threads == "serial":
        return literal(1, INDEX)
    more = binary(fn, "lt", literal(0, INDEX), asked)
    return fn.value(f"select {more.typed}, {asked.typed}, {_default_threads(fn, face).typed}", INDEX)


def _workspace_bytes(module: Module, face: Face) -> None:
    """`i64 (sizes..., threads)`: the bytes of a workspace, or a negative code."""
    inner = f"{face.name}.workspace"
    fn = Function(module, inner, [*(v.typed for v in face.sizes), "i64 %threads"], internal=True)
    _check_sizes(fn, face, f"i64 {BAD_SIZE}")
    threads = _or_default(fn, face, Value("%threads", INDEX))

    def answer(prefix: str) -> None:
        _, _, total = needed_bytes(fn, prefix, face.sizes, threads)
        fn.do(f"ret {total.typed}")

    _each(fn, face, f"i64 {NO_VARIANT}", answer)
    fn.finish("i64")
    parameters = [*(v.typed for v in face.sizes), "i64 %threads"]
    _forward(module, f"{face.name}_workspace_bytes", parameters, inner, "i64")


def _forward(module: Module, name: str, parameters: Sequence[str], inner: str, result: str) -> None:
    """A function for others that calls one of ours; what we call ourselves nobody can put another one in place of."""
    fn = Function(module, name, list(parameters))
    arguments = ", ".join(parameters)
    fn.do(f"ret {result} {fn.op(f'call {result} @{inner}({arguments})')}")
    fn.finish(result)


def _run(module: Module, face: Face) -> None:
    """`i32 (arrays..., sizes..., workspace, host)`."""
    inner, parameters = f"{face.name}.call", [*face.given, "ptr %workspace", "ptr %host"]
    fn = Function(module, inner, parameters, internal=True)
    _check_sizes(fn, face, f"i32 {BAD_SIZE}")
    threads, runner, user = _host(fn, face)
    held = {buffer.name: f"ptr %a{k}" for k, buffer in enumerate(face.arrays)}
    arguments = [*(held[p.name] for p in face.kernel.params), *(v.typed for v in face.sizes)]
    arguments += [threads.typed, f"ptr {runner}", f"ptr {user}", "ptr %workspace"]

    def call(prefix: str) -> None:
        typed = ", ".join(arguments)
        fn.do(f"ret i32 {fn.op(f'call i32 @{prefix}.run({typed})')}")

    _each(fn, face, f"i32 {NO_VARIANT}", call)
    fn.finish("i32")
    _forward(module, f"{face.name}_run", parameters, inner, "i32")


def _host(fn: Function, face: Face) -> tuple[Value, str, str]:
    """Threads, runner and its argument: those of the caller's tl_host, or the default ones where it gives none."""
    word_bytes = face.pointer_bytes
    default, own = _default_threads(fn, face), f"@{face.name}.openmp" if face.threads == "openmp" else "null"
    look, trust, both, join = (fn.fresh(wish) for wish in ("host", "trust", "runs", "join"))
    before = fn.block
    fn.branch(compare(fn, "eq", "ptr", "%host", "null"), join, look)
    fn.start(look)
    refuse(fn, compare(fn, "ne", "i32", load(fn, "%host", 0, "i32"), str(ABI)), f"i32 {BAD_HOST}")
    told = word(fn, "%host", 4, "i32")
    user, runs = load(fn, "%host", 8, "ptr"), load(fn, "%host", 8 + word_bytes, "ptr")
    if face.threads == "host":  # one task would do, and nobody would notice
        none = compare(fn, "sle", "i64", told.text, "0")
        given = compare(fn, "ne", "ptr", runs, "null")
        refuse(fn, fn.value(f"and {none.typed}, {given.text}", "bool"), f"i32 {BAD_HOST}")
    asked = _or_default(fn, face, told)
    fn.branch(compare(fn, "eq", "ptr", runs, "null"), trust, both)
    fn.start(trust)
    alone = asked if face.threads == "openmp" else literal(1, INDEX)
    fn.jump(join)
    fn.start(both)
    fn.jump(join)
    fn.start(join)
    threads = fn.value(f"phi i64 [{default.text}, %{before}], [{alone.text}, %{trust}], [{asked.text}, %{both}]", INDEX)
    runner = fn.op(f"phi ptr [{own}, %{before}], [{own}, %{trust}], [{runs}, %{both}]")
    argument = fn.op(f"phi ptr [null, %{before}], [null, %{trust}], [{user}, %{both}]")
    return threads, runner, argument


def _call(module: Module, face: Face) -> None:
    """`i32 (arrays..., sizes...)`: a call with a workspace of its own, where one is needed."""
    inner = f"{face.name}.alone"
    fn = Function(module, inner, face.given, internal=True)
    sizes = [v.typed for v in face.sizes]
    total = fn.value(f"call i64 @{face.name}.workspace({', '.join([*sizes, 'i64 0'])})", INDEX)
    refuse(fn, compare(fn, "slt", "i64", total.text, "0"), f"i32 {fn.op(f'trunc {total.typed} to i32')}")
    none, some = fn.fresh("none"), fn.fresh("some")
    fn.branch(compare(fn, "eq", "i64", total.text, "0"), none, some)
    fn.start(none)
    simple = fn.op(f"call i32 @{face.name}.call({', '.join([*face.given, 'ptr null', 'ptr null'])})")
    fn.do(f"ret i32 {simple}")
    fn.start(some)
    if face.allocates:
        take = module.declare("aligned_alloc", "noalias ptr", "i64, i64")
        held = fn.op(f"call noalias ptr {take}(i64 {_ALIGNMENT}, {total.typed})")
        refuse(fn, compare(fn, "eq", "ptr", held, "null"), f"i32 {NO_WORKSPACE}")
        status = fn.op(f"call i32 @{face.name}.call({', '.join([*face.given, f'ptr {held}', 'ptr null'])})")
        fn.do(f"call void {module.declare('free', 'void', 'ptr')}(ptr {held})")
        fn.do(f"ret i32 {status}")
    else:
        fn.do(f"ret i32 {NO_WORKSPACE}")
    fn.finish("i32")
    _forward(module, face.name, face.given, inner, "i32")
