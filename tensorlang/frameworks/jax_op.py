"""A kernel as a function of JAX: XLA calls it by its foreign function interface, and gradients are programs of ours."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from tensorlang import dtypes
from tensorlang.errors import ArgumentError, DefinitionError, MissingDependency, TargetError, shown
from tensorlang.frameworks.gradients import Backward, Way, check_pure, given_backward, way_back
from tensorlang.frameworks.program import Program, program_of
from tensorlang.ir.expr import Buffer, Var
from tensorlang.ir.printer import kernel_text
from tensorlang.runtime import openmp
from tensorlang.runtime.cache import cached
from tensorlang.runtime.executable import Executable
from tensorlang.target.llvm import engine
from tensorlang.target.llvm.host import fingerprint
from tensorlang.target.llvm.image import Library
from tensorlang.target.llvm.library.build import Wanted, draft
from tensorlang.target.spec import Target
from tensorlang.te.operation import Tensor

_counter = itertools.count()
_kept: list[Any] = []


def jax_function(kernel: Executable, backward: bool | Executable = True) -> Any:
    """Make a kernel a function of JAX arrays, which `jax.jit`, `jax.vmap`, `jax.grad` and `jax.export` take.

    It takes what the kernel takes but its outputs, in the same order (sizes as Python's integers), and returns those:
    one array, or a tuple. `backward` is that of `torch_op`. `jax.vmap` calls the kernel for one element after the
    other. To export, say `disabled_checks=[jax.export.DisabledSafetyCheck.custom_call(f.target)]`, and make the
    function under the same name (the kernels of a process are numbered) where the program is loaded.

    MissingDependency without JAX; DefinitionError for programs that have no derivative, or that update inputs in place;
    TargetError for kernels of GPUs, and those that call Python.
    """
    jax()
    forward = program_of(kernel)
    check_pure(forward)
    if isinstance(backward, Executable):
        own = given_backward(forward, program_of(backward))
        return function_of(forward, lambda _: own, kernel.target)
    if not isinstance(backward, bool):
        raise DefinitionError(f"backward is True, False or a kernel, got {shown(backward)}")
    return function_of(forward, way_back(forward, kernel.target) if backward else None, kernel.target)


@cache
def jax() -> Any:
    """JAX, or MissingDependency."""
    try:
        import jax
    except ImportError:
        raise MissingDependency("functions of JAX need it: pip install jax") from None
    return jax


def function_of(program: Program, way: Way | None, target: Target) -> Any:
    """The function of a program; `way` gives the way back to some inputs, or there is none."""
    jx = jax()
    if target.can.device:
        raise TargetError(f"jax_op takes kernels for CPUs, got one for {target}")
    name = f"tensorlang.{program.name}.{next(_counter)}"
    numbers = tuple(n for n, a in enumerate(program.given) if isinstance(a, Var))
    registered: list[bool] = []

    def plain(*inputs: Any) -> Any:
        if not registered:
            jx.ffi.register_ffi_target(name, _handler(program.kernel), platform="cpu")
            registered.append(True)
        arrays = _checked(program, inputs)
        shapes = program.shapes(program.sizes(inputs))
        results = [jx.ShapeDtypeStruct(s, d) for s, d in zip(shapes, program.numpy_dtypes, strict=True)]
        made = jx.ffi.ffi_call(name, results, vmap_method="sequential")(*arrays)
        return made[0] if len(results) == 1 else tuple(made)

    function = plain if way is None else _differentiable(plain, program, way, target, numbers)
    function.__name__ = function.__qualname__ = program.name
    made = jx.jit(function, static_argnums=numbers)
    made.target = name
    return made


def _checked(program: Program, inputs: Sequence[Any]) -> list[Any]:
    if len(inputs) != len(program.given):
        names = ", ".join(program.names)
        raise ArgumentError(f"{program.name} takes {len(program.given)} arguments ({names}), got {len(inputs)}")
    arrays = []
    for wanted, value in zip(program.given, inputs, strict=True):
        if isinstance(wanted, Tensor):
            value = jax().numpy.asarray(value)
            if dtypes.canonical(value.dtype) != wanted.dtype:
                text = f"{program.name}: {wanted.name}: expected dtype {wanted.dtype}, got {value.dtype}"
                raise ArgumentError(f"{text}; use .astype, or jax.config.update('jax_enable_x64', True)")
            arrays.append(value)
    return arrays


def _differentiable(
    plain: Callable[..., Any], program: Program, way: Way, target: Target, numbers: tuple[int, ...]
) -> Any:
    """A function with a gradient: only for inputs that want one."""
    jx = jax()
    _register_static()
    gradients: dict[tuple[int, ...], tuple[Backward, Any]] = {}
    arrays = [n for n in range(len(program.given)) if n not in numbers]
    single = len(program.made) == 1

    def gradient(wanted: tuple[int, ...]) -> tuple[Backward, Any]:
        if wanted not in gradients:
            found = way(wanted)
            made = found.program and function_of(found.program, way_back(found.program, target, tried=False), target)
            gradients[wanted] = found, made
        return gradients[wanted]

    def forward(*inputs: Any) -> Any:
        values = [x.value if n in arrays else x for n, x in enumerate(inputs)]
        wanted = tuple(n for n in program.floats if inputs[n].perturbed)
        result: Any = function(*values)  # and not `plain`: others may differentiate this, too
        results = (result,) if single else result
        found, _ = gradient(wanted)
        saved = [results[n] if is_output else values[n] for is_output, n in found.saved]
        sizes = {name: program.sizes(values)[name] for name in found.sizes}
        return result, (_Static((wanted, tuple(sizes.items()))), saved)

    def back(*given: Any) -> Any:
        (static, saved), heads = given[-2:]
        wanted, sizes = static.value
        heads = (heads,) if single else heads
        found, derivative = gradient(wanted)
        grads: dict[int, Any] = {}
        if derivative is not None:
            full = [_whole(heads[n]) for n in found.heads]
            results = derivative(*(size for _, size in sizes), *saved, *full)
            grads = dict(zip(found.wanted, (results,) if len(found.wanted) == 1 else results, strict=True))
        return tuple(grads.get(n) if n in wanted else None for n in arrays)

    function = jx.custom_vjp(plain, nondiff_argnums=numbers)
    function.defvjp(forward, back, symbolic_zeros=True)
    return function


class _Static:
    """A value that is no array, between the ways forth and back."""

    def __init__(self, value: Any) -> None:
        self.value = value


@cache
def _register_static() -> None:
    jax().tree_util.register_pytree_node(_Static, lambda s: ((), s.value), lambda value, _: _Static(value))


def _whole(head: Any) -> Any:
    """A head as an array, also where it is known to be 0."""
    from jax.custom_derivatives import SymbolicZero

    return jax().numpy.zeros(head.shape, head.dtype) if isinstance(head, SymbolicZero) else head


def _handler(kernel: Executable) -> Any:
    """The function that XLA calls, in a capsule: a library with OpenMP's threads, loaded from memory."""
    if kernel.kernel.callbacks:
        raise TargetError(f"{kernel.entry_name} calls Python: XLA cannot call it")
    origin, team = kernel.origin, kernel.target.cores > 1 and openmp.available()
    arrays = tuple(a for a in kernel.signature if isinstance(a, Buffer))
    name = f"tl_{kernel.entry_name}"
    made = draft(
        [(origin.kernel, kernel.target)],  # type: ignore[union-attr]
        Wanted(name, arrays, "openmp" if team else "serial", ("c", "xla")),
    )
    known = openmp.addresses(kernel.target.cores) if team else {}
    key = (kernel_text(origin.kernel), *(m.text() for m in made.modules), str(arrays), str(team))  # type: ignore[union-attr]

    def load(code: bytes) -> Library:
        return engine.load(code, [f"{name}_xla"], known)

    library = cached((*key, fingerprint(made.machine)), lambda: made.compile("{}"), load)
    _kept.append(library)
    return jax().ffi.pycapsule(ctypes.CFUNCTYPE(None)(library.addresses[f"{name}_xla"]))
