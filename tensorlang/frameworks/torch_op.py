"""A kernel as an operator of PyTorch: with shapes for its compiler, a gradient, and torch.vmap.

An operator is `torch.ops.<namespace>.<name>`, registered with `torch.library`. Its kernel for CPUs allocates what comes
out and calls ours. Above it, where it has a gradient, stands a function for autograd, which calls the kernel at once
when nothing is recorded and nobody else (a mode, a transform) is to see the operator.
"""

from __future__ import annotations

import itertools
import math
import re
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from tensorlang.errors import DefinitionError, MissingDependency, TargetError, shown
from tensorlang.frameworks.gradients import Backward, Way, given_backward, way_back
from tensorlang.frameworks.program import Program, differentiable, program_of
from tensorlang.ir.expr import Var
from tensorlang.runtime.executable import Executable
from tensorlang.target.spec import Target
from tensorlang.te.operation import Tensor

_libraries: dict[str, Any] = {}
_names: set[str] = set()
_counter = itertools.count()
NAMESPACE = "tensorlang"


def torch_operator(kernel: Executable, name: str, backward: bool | Executable = True) -> Any:
    """Register a kernel as the operator `name` ("namespace::operator") of PyTorch; returns it, from `torch.ops`.

    It takes what the kernel takes but its outputs, in the same order (sizes as integers), and returns those: one
    tensor, or a tuple. Inputs need not be contiguous. `torch.compile`, `torch.export` and `torch.vmap` take it; a
    kernel that updates inputs in place is an operator that does so, too.

    `backward`: True has te.gradient write the way back, for floats, built when it is first needed; a kernel of your own
    takes the inputs and a head for each output of floats, and writes a gradient for each input of floats; False means
    no gradient. Derivatives of derivatives are made in the same way.

    MissingDependency without PyTorch; DefinitionError for a name that is taken, and programs that have no derivative;
    TargetError for kernels of GPUs.
    """
    torch = pytorch()
    if kernel.target.can.device:
        raise TargetError(f"torch_op takes kernels for CPUs, got one for {kernel.target}; call it with the tensors")
    forward = program_of(kernel)
    if isinstance(backward, Executable):
        own = given_backward(forward, program_of(backward))
        way: Way | None = lambda _: own  # noqa: E731
    elif not isinstance(backward, bool):
        raise DefinitionError(f"backward is True, False or a kernel, got {shown(backward)}")
    else:
        way = way_back(forward, kernel.target) if backward else None
    return _Operator(torch, _checked(name), forward, way, kernel.target).overload.overloadpacket


def numbered_operator(name: str, program: Program, target: Target) -> str:
    """Register a program under a name that nobody else has, and return it; what has no gradient says so when asked."""
    whole = f"{re.sub(r'[^0-9A-Za-z_]', '_', name)}_{next(_counter)}"
    way = way_back(program, target, tried=False)
    _Operator(pytorch(), f"{NAMESPACE}::{whole}", program, way, target)
    return whole


@cache
def pytorch() -> Any:
    """PyTorch, or MissingDependency."""
    try:
        import torch
    except ImportError:
        raise MissingDependency("operators of PyTorch need it: pip install torch") from None
    return torch


def _checked(name: object) -> str:
    parts = name.split("::") if isinstance(name, str) else []
    if len(parts) != 2 or not all(part.isidentifier() and part.isascii() for part in parts):
        raise DefinitionError(f"an operator of PyTorch is named 'namespace::name', got {shown(name)}")
    if name in _names:
        raise DefinitionError(f"{name} is an operator already, and PyTorch takes no other of its name")
    return f"{name}"


class _Operator:
    """A registered operator of a program, and the operators of its gradients as they become needed."""

    def __init__(
        self,
        torch: Any,
        name: str,
        program: Program,
        way: Way | None,
        target: Target,
    ) -> None:
        self.torch, self.name, self.program, self.target = torch, name, program, target
        self.way = way
        self.gradients: dict[tuple[int, ...], tuple[Backward, Any]] = {}
        self.places = program.floats
        self.single = len(program.made) == 1
        namespace, _, own = name.partition("::")
        library = _libraries.get(namespace) or torch.library.Library(namespace, "FRAGMENT")
        _libraries[namespace] = library
        library.define(f"{own}{_schema(program)}")
        _names.add(name)
        self.run, self.run_free = _runners(torch, program)
        library.impl(own, self.run, "CPU")
        torch.library.register_fake(name, self.fake, lib=library)
        self.overload = getattr(getattr(torch.ops, namespace), own).default
        if not program.written:
            torch.library.register_vmap(name, self.batch, lib=library)
        if way is not None:
            library.impl(own, _above(torch, self), "Autograd", with_keyset=True)

    def fake(self, *inputs: Any) -> Any:
        """What comes out, without values: for the compiler."""
        shapes = self.program.shapes(self.program.sizes(inputs))
        like = next(x for x in inputs if isinstance(x, self.torch.Tensor))
        made = [like.new_empty(s, dtype=_dtype(self.torch, t)) for s, t in zip(shapes, self.program.made, strict=True)]
        return made[0] if self.single else tuple(made) or None

    def batch(self, info: Any, places: Sequence[int | None], *inputs: Any) -> Any:
        """Run for each element of a batch."""
        results = []
        for number in range(info.batch_size):
            one = [x if at is None else x.select(at, number) for x, at in zip(inputs, places, strict=True)]
            results.append(self.overload(*one))
        if self.single:
            return self.torch.stack(results), 0
        return tuple(map(self.torch.stack, zip(*results, strict=True))), (0,) * len(self.program.made)

    def gradient(self, wanted: tuple[int, ...]) -> tuple[Backward, Any]:
        """The way back to some inputs, and its operator."""
        if wanted not in self.gradients:
            assert self.way is not None
            found = self.way(wanted)
            if found.program is None:
                self.gradients[wanted] = found, None
            elif (known := self.gradients.get(found.wanted)) is not None:
                self.gradients[wanted] = known
            else:
                every = found.wanted == self.places
                name = f"{self.name}_backward" + ("" if every else "".join(f"_{n}" for n in wanted))
                way = way_back(found.program, self.target, tried=False)
                made = _Operator(self.torch, name, found.program, way, self.target)
                self.gradients[wanted] = self.gradients[found.wanted] = found, made.overload
        return self.gradients[wanted]


def _schema(program: Program) -> str:
    given = []
    for n, (place, argument, name) in enumerate(zip(program.inputs, program.given, program.names, strict=True)):
        written = f"({chr(ord('a') + n)}!)" if place in program.written else ""
        given.append(f"{'SymInt' if isinstance(argument, Var) else f'Tensor{written}'} {name}")
    made = ["Tensor"] * len(program.made)
    return f"({', '.join(given)}) -> {made[0] if len(made) == 1 else '(' + ', '.join(made) + ')'}"


def _dtype(torch: Any, tensor: Tensor) -> Any:
    found = getattr(torch, tensor.dtype, None)
    if found is None:
        raise DefinitionError(
            f"{tensor.name} is {tensor.dtype}, which this PyTorch ({torch.__version__}) does not have"
        )
    return found


def _runners(torch: Any, program: Program) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """What runs the kernel on tensors, and on those of which none requires a gradient; both allocate what comes out."""
    from torch.utils._python_dispatch import _disable_current_modes

    dtypes = [_dtype(torch, t) for t in program.made]
    arrays = [n for n, a in enumerate(program.given) if isinstance(a, Tensor)]
    order = {place: n for n, place in enumerate((*program.inputs, *program.outputs))}
    places = [order[n] for n in range(len(program.arguments))]
    written = [n for n, place in enumerate(program.inputs) if place in program.written]
    fixed, empty = program.fixed, torch.empty
    in_order, single = places == sorted(places), len(dtypes) == 1

    def run(*inputs: Any) -> Any:
        given = list(inputs)
        for n in arrays:
            given[n] = _plain(inputs[n])
        shapes = program.shapes(program.sizes(inputs)) if fixed is None else fixed
        made = [empty(shape, dtype=dtype, device="cpu") for shape, dtype in zip(shapes, dtypes, strict=True)]
        whole = [*given, *made]
        program.kernel(*(whole if in_order else [whole[n] for n in places]))
        for n in written:
            if given[n] is not inputs[n]:
                inputs[n].detach().copy_(given[n])
        return made[0] if single else tuple(made) or None

    if single and in_order and not written and fixed is not None and len(arrays) == len(program.inputs):
        held = (1,) if math.prod(fixed[0]) > 1 else fixed[0]
        with _disable_current_modes():  # compilers ask for operators with fake tensors in force
            return _simple_runners(torch, program, empty(held, dtype=dtypes[0], device="cpu").expand(fixed[0]))
    return run, run


def _plain(x: Any) -> Any:
    """A tensor that a kernel takes."""
    return x.detach().contiguous() if x.requires_grad or not x.is_contiguous() else x


def _simple_runners(torch: Any, program: Program, like: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Quicker ones for a program of arrays with one result: `like` has its shape, in the memory of one element."""
    empty_like = torch.empty_like  # makes a contiguous one of what overlaps itself; to say so would cost 0.4 µs
    assert empty_like(like).is_contiguous()

    def run_free(*inputs: Any) -> Any:
        for x in inputs:
            if not x.is_contiguous():
                inputs = tuple(map(_plain, inputs))
                break
        made = empty_like(like)
        program.kernel(*inputs, made)
        return made

    def run(*inputs: Any) -> Any:
        for x in inputs:
            if x.requires_grad or not x.is_contiguous():
                inputs = tuple(map(_plain, inputs))
                break
        made = empty_like(like)
        program.kernel(*inputs, made)
        return made

    return run, run_free


@cache
def _plain_keys() -> int:
    """The dispatch keys of a call with tensors on CPUs that no mode and no transform sees.

    Asked in a thread of its own, since modes belong to threads.
    """
    torch = pytorch()
    seen: list[Any] = []
    library = torch.library.Library(NAMESPACE, "FRAGMENT")
    library.define("plain(Tensor x) -> ()")
    library.impl("plain", lambda keys, x: seen.append(keys), "Autograd", with_keyset=True)
    _libraries["tensorlang::plain"] = library
    asking = threading.Thread(target=lambda: torch.ops.tensorlang.plain.default(torch.empty(0, device="cpu")))
    asking.start()
    asking.join()
    return int(seen[0].raw_repr())


def _above(torch: Any, operator: _Operator) -> Callable[..., Any]:
    """The function for autograd of an operator."""
    from torch._functorch.autograd_function import enable_single_level_autograd_function

    run, run_free, overload, program = operator.run, operator.run_free, operator.overload, operator.program
    below, recording, keys_of_plain = torch._C._AutoDispatchBelowAutograd, torch.is_grad_enabled, _plain_keys()
    one_level, forward_mode = enable_single_level_autograd_function, torch.autograd.forward_ad
    floats = operator.places
    integers = [n for n in range(len(program.made)) if n not in differentiable(program.made)]

    class Node(torch.autograd.Function):  # type: ignore[misc]
        """The operator on the tape."""

        @staticmethod
        def forward(ctx: Any, is_plain: bool, *inputs: Any) -> Any:
            if is_plain:
                made = run(*inputs)
            else:
                with below(), torch.enable_grad():
                    made = overload(*inputs)
            made_all = (made,) if operator.single else made
            wanted = tuple(n for n in operator.places if ctx.needs_input_grad[n + 1])
            ctx.way, ctx.gradient = operator.gradient(wanted)
            ctx.save_for_backward(*(made_all[n] if is_output else inputs[n] for is_output, n in ctx.way.saved))
            ctx.sizes = [program.sizes(inputs)[n] for n in ctx.way.sizes] if ctx.way.sizes else []
            if integers:
                ctx.mark_non_differentiable(*(made_all[n] for n in integers))
            return made

        @staticmethod
        def backward(ctx: Any, *heads: Any) -> Any:
            grads: list[Any] = [None] * (1 + len(program.given))
            if ctx.gradient is not None:
                found = ctx.gradient(*ctx.sizes, *ctx.saved_tensors, *(heads[n] for n in ctx.way.heads))
                for n, grad in zip(ctx.way.wanted, (found,) if len(ctx.way.wanted) == 1 else found, strict=True):
                    grads[n + 1] = grad
            return tuple(grads)

    def requires_grad(inputs: Sequence[Any]) -> bool:
        for n in floats:  # noqa: SIM110 - any() would take twice as long
            if inputs[n].requires_grad:
                return True
        return False

    # A level at a time: the dispatcher has done for transforms what autograd.Function.apply would do.
    apply = super(torch.autograd.Function, Node).apply

    def autograd(keys: Any, *inputs: Any) -> Any:
        is_plain = keys.raw_repr() == keys_of_plain
        if ((required := requires_grad(inputs)) and recording()) or forward_mode._current_level >= 0:
            if is_plain:
                return apply(True, *inputs)
            with one_level():
                return apply(False, *inputs)
        if is_plain:
            return run(*inputs) if required else run_free(*inputs)
        with below():
            return overload(*inputs)

    return autograd
