"""Functions of tensors as functions of arrays: `@tensorlang.kernel` builds a kernel for each kind of arguments.

What a call is keyed by are shapes and dtypes of arrays, and all other arguments as they are; a size that is declared by
name is open, and one kernel is for all its values. Whose arrays come in says whose come out: NumPy's, PyTorch's (by an
operator of PyTorch for each kind) or JAX's (by a function of JAX).
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, overload

import numpy as np

from tensorlang import dtypes
from tensorlang.autotune import apply_history_best, task_of
from tensorlang.autotune import tune as tune_task
from tensorlang.dataclass import dataclass
from tensorlang.driver import build
from tensorlang.errors import ArgumentError, DefinitionError, shown
from tensorlang.files import exists
from tensorlang.frameworks.gradients import way_back
from tensorlang.frameworks.kinds import Array, Extents, declared, is_array, kind
from tensorlang.frameworks.program import Program, program
from tensorlang.runtime.executable import Executable
from tensorlang.target.detect import parse
from tensorlang.target.spec import Target
from tensorlang.te.define import placeholder
from tensorlang.te.domain import size_var
from tensorlang.te.operation import PlaceholderOp, Tensor

_MOST_KEYS = 4096
_SHAPE = re.compile(r"(?P<shape>\d+(x\d+)*)(:(?P<dtype>\w+))?")


@overload
def kernel(function: Callable[..., Any], /) -> ArrayFunction: ...


@overload
def kernel(
    *,
    shapes: Mapping[str, str] | None = None,
    target: str | Target | None = None,
    log: str | os.PathLike[str] | None = None,
) -> Callable[[Callable[..., Any]], ArrayFunction]: ...


def kernel(
    function: Callable[..., Any] | None = None,
    /,
    *,
    shapes: Mapping[str, str] | None = None,
    target: str | Target | None = None,
    log: str | os.PathLike[str] | None = None,
) -> ArrayFunction | Callable[[Callable[..., Any]], ArrayFunction]:
    """Make a function of arrays of a function of tensors: `@tensorlang.kernel`.

    The function is called with placeholders for arrays, and returns a tensor or several; any other argument (an axis, a
    factor) it gets as it is. It is called, scheduled and built once for each kind of arguments: by the best tuned
    record of the program if there is one (in `log`, where records are in use, in the default store), else by default.
    Results are allocated. Arguments are NumPy arrays, tensors of PyTorch on a CPU, or arrays of JAX, all from one of
    them; in PyTorch and JAX it has gradients, and their compilers and transforms take it. Called with tensors of te it
    is the function itself, so that one can be made of others.

    `shapes` leaves sizes open, with one kernel for all their values: `{"x": "n, 64", "w": "_, 64"}` names the first of
    x, wants 64 in the second, and has `_` for a size that each kind of arguments has its own kernel for. A name stands
    for the same size everywhere.

    Example:
        @tensorlang.kernel
        def scaled_sum(x, y, factor):
            return te.compute(x.shape, lambda i, j: x[i, j] + y[i, j] * factor)

        scaled_sum(np.ones((2, 3), "float32"), np.ones((2, 3), "float32"), 0.5)
    """
    if function is None:
        return lambda f: ArrayFunction(f, parse(target), log, shapes)
    return ArrayFunction(function, parse(target), log, shapes)


def _constant(function: Callable[..., str]) -> Callable[..., str]:
    """Have torch's compiler take what a function returns as a constant.

    So does `torch.compiler.assume_constant_result`, for which the compiler would have to be imported.
    """
    setattr(function, "_dynamo_marked_constant", True)  # noqa: B010
    return function


@dataclass(frozen=True)
class _Like:
    """An array of which no more is known."""

    shape: Any
    dtype: Any


class ArrayFunction:
    """A function of arrays, made of one of tensors."""

    __name__: str

    def __init__(
        self,
        function: Callable[..., Any],
        target: Target,
        log: str | os.PathLike[str] | None,
        shapes: Mapping[str, str] | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self._function, self._target, self._log = function, target, log
        self._signature = inspect.signature(function)
        self._names = list(self._signature.parameters)
        self._programs: dict[Any, Program] = {}
        self._tuned: dict[Any, Program] = {}
        self._named: dict[Program, str] = {}
        self._operators: dict[Any, Any] = {}
        self._functions: dict[Program, Any] = {}
        self._known: dict[Any, tuple[Program, list[tuple[tuple[int, ...], Any]]]] = {}
        parameters = self._signature.parameters.values()
        self._defaults = [p.default for p in parameters]
        if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
            raise DefinitionError(f"{self.__name__}{self._signature} takes any number of arguments; name each")
        self._shapes = declared(self.__name__, self._names, shapes)

    def __call__(self, *args: Any, **named: Any) -> Any:
        if named or len(args) != len(self._names):
            args = self._completed(args, named)
        for value in args:
            if isinstance(value, np.ndarray):
                return self._of_numpy(args)
            if isinstance(value, Tensor):
                return self._function(*args)
            if "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor):
                return self._of_torch(args)
            if "jax" in sys.modules and isinstance(value, sys.modules["jax"].Array):
                return self._of_jax(args)
        raise ArgumentError(
            f"{self.__name__} wants arrays of NumPy, PyTorch or JAX, got {', '.join(map(shown, args)) or 'nothing'}"
        )

    def executable(self, *args: Any, **named: Any) -> Executable:
        """The kernel for arguments like these: it takes the arrays, then those that it writes."""
        return self.program(self._bound(args, named)).kernel

    def tune(self, *args: Any, trials: int = 64, log: str | os.PathLike[str] | None = None, **options: Any) -> Any:
        """Tune the program for arguments like these; calls take the best from then on. Returns the result of the tuner.

        Where sizes are open, arguments of these very sizes get a kernel of their own. Records go to `log`, else to the
        log of the function, else to the default store; `options` are those of `autotune.tune`.
        """
        bound = self._bound(args, {})
        exact = self._kinds(bound, {})
        self._kinds(bound, self._shapes)  # refuses shapes that are none of those declared
        found = self._program_of(exact, bound)
        where = log or self._log or "default"
        tensors = [t for t in found.arguments if isinstance(t, Tensor)]
        task = task_of(tensors, name=self.__name__, target=self._target)
        result = tune_task(task, trials, log=where, **options)
        if self._log is None and where != "default":
            self._log = where
        found.renew()
        if self._shapes:
            self._tuned[exact] = found
        for known in (self._known, self._operators, self._functions):
            known.clear()
        return result

    def tensors(self, *args: Any) -> list[Tensor]:
        """The tensors of the program, inputs first, for arrays by their shapes, as a command line gives them.

        "64x32" is an array of float32, "64:int8" one of int8 with one dimension; any other argument is as it is.
        """
        arrays = [_like(x) for x in args]
        return [t for t in self.program(self._bound(tuple(arrays), {})).arguments if isinstance(t, Tensor)]

    def export(self, path: str | Path, *args: Any, **how: Any) -> Any:
        """Write the kernel for arguments like these to files; `how` as in `Executable.export`."""
        return self.executable(*args).export(path, **how)

    def program(self, args: tuple[Any, ...]) -> Program:
        """The program for arguments in order: that of their very sizes where it was tuned, else with open ones."""
        return self._of_sizes(args) or self._program_of(self._kinds(args, self._shapes), args)

    def _of_sizes(self, args: tuple[Any, ...]) -> Program | None:
        """The program that was tuned for sizes which are open otherwise; none while they are no numbers."""
        if not self._tuned or not all(isinstance(e, int) for x in args if is_array(x) for e in x.shape):
            return None
        return self._tuned.get(self._kinds(args, {}))

    def _kinds(self, args: tuple[Any, ...], shapes: Mapping[str, Extents]) -> tuple[Any, ...]:
        """What a call is keyed by, with sizes open where shapes name them."""
        found = []
        for name, value in zip(self._names, args, strict=True):
            try:
                found.append(kind(value, shapes.get(name)))
                hash(found[-1])
            except ArgumentError as error:
                raise ArgumentError(f"{self.__name__}: {name}: {error}") from None
            except TypeError:
                text = f"{self.__name__} takes arrays, and values that can be hashed"
                raise ArgumentError(f"{text}, got {shown(value)}") from None
        return tuple(found)

    def _program_of(self, kinds: tuple[Any, ...], args: tuple[Any, ...]) -> Program:
        if kinds not in self._programs:
            self._programs[kinds] = self._made(args, kinds)
        return self._programs[kinds]

    def _completed(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """All arguments in order; those that are left out at the end are at hand."""
        if not named:
            rest = self._defaults[len(args) :]
            if len(args) < len(self._names) and inspect.Parameter.empty not in rest:
                return (*args, *rest)
        return self._bound(args, named)

    def _bound(self, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        try:
            bound = self._signature.bind(*args, **named)
        except TypeError as error:
            raise ArgumentError(f"{self.__name__}{self._signature}: {error}") from None
        bound.apply_defaults()
        return tuple(bound.arguments.values())

    def _of_torch(self, args: tuple[Any, ...]) -> Any:
        torch = sys.modules["torch"]
        tensors = [x for x in args if isinstance(x, torch.Tensor)]
        if torch.compiler.is_compiling():
            kinds = []
            for name, x in zip(self._names, args, strict=True):
                if not isinstance(x, torch.Tensor):
                    kinds.append((False, x, None))
                    continue
                named = self._shapes.get(name, ())
                open_ = [isinstance(extent, str) for extent in named] or [False] * len(x.shape)
                kinds.append((True, tuple(map(_number, x.shape, open_)), x.dtype))
            return getattr(torch.ops.tensorlang, self._operator_name(*kinds)).default(*tensors)
        key = tuple([(x.shape, x.dtype) if isinstance(x, torch.Tensor) else (type(x), x) for x in args])
        found = _found(self._operators, key)
        if found is None:
            self._check_whose(args, torch.Tensor)
            name = self._operator(self.program(args))
            found = getattr(torch.ops.tensorlang, name).default
            _keep(self._operators, key, found)
        return found(*tensors)

    @_constant
    def _operator_name(self, *kinds: tuple[bool, Any, Any]) -> str:
        """The name of the operator for arrays of these shapes and dtypes, and other arguments."""
        return self._operator(self.program(tuple(_Like(a, b) if is_array else a for is_array, a, b in kinds)))

    def _operator(self, found: Program) -> str:
        if found not in self._named:
            from tensorlang.frameworks.torch_op import numbered_operator

            self._named[found] = numbered_operator(self.__name__, found, self._target)
        return self._named[found]

    def _of_jax(self, args: tuple[Any, ...]) -> Any:
        found = self.program(args)
        if found not in self._functions:
            from tensorlang.frameworks.jax_op import function_of

            way = way_back(found, self._target, tried=False)
            self._functions[found] = function_of(found, way, self._target)
        return self._functions[found](*(x for x in args if is_array(x)))

    def _of_numpy(self, args: tuple[Any, ...]) -> Any:
        arrays = [x for x in args if isinstance(x, np.ndarray)]
        key = tuple([(x.shape, x.dtype) if isinstance(x, np.ndarray) else (type(x), x) for x in args])
        found = _found(self._known, key)
        if found is None:
            if "jax" in sys.modules and any(isinstance(x, sys.modules["jax"].Array) for x in args):
                return self._of_jax(args)  # which takes NumPy's arrays, too
            self._check_whose(args, np.ndarray)
            program = self.program(args)
            shapes = program.fixed or program.shapes(program.sizes(arrays))
            found = program, list(zip(shapes, program.numpy_dtypes, strict=True))
            _keep(self._known, key, found)
        program, results = found
        made = [np.empty(shape, dtype) for shape, dtype in results]
        given = [x if x.flags.c_contiguous else np.ascontiguousarray(x) for x in arrays]
        program.kernel(*given, *made)
        return made[0] if len(made) == 1 else tuple(made)

    def _check_whose(self, args: tuple[Any, ...], own: type) -> None:
        others = {type(x).__name__ for x in args if is_array(x) and not isinstance(x, own)}
        if others:
            text = f"{self.__name__} wants arrays of one library"
            raise ArgumentError(f"{text}, got {own.__name__} and {', '.join(sorted(others))}")

    def _made(self, args: tuple[Any, ...], kinds: tuple[Any, ...]) -> Program:
        given: list[Any] = []
        sizes: dict[str, Any] = {}
        for name, value, of in zip(self._names, args, kinds, strict=True):
            given.append(placeholder(_sized(of.shape, sizes), of.dtype, name) if isinstance(of, Array) else value)
        inputs = [t for t in given if isinstance(t, Tensor)]
        result = self._function(*given)
        outputs = list(result) if isinstance(result, tuple | list) and result else [result]
        for tensor in outputs:
            if not isinstance(tensor, Tensor) or isinstance(tensor.op, PlaceholderOp):
                text = f"{self.__name__} returns a tensor that is computed, or several"
                raise DefinitionError(f"{text}, got {shown(tensor)}; te.compute makes one")
        arguments = (*inputs, *outputs)
        places = frozenset(range(len(inputs), len(arguments)))
        return program(self.__name__, arguments, places, lambda: self._built(list(arguments)))

    def _built(self, tensors: list[Tensor]) -> Executable:
        with nullcontext() if self._log is None or not exists(self._log) else apply_history_best(self._log):
            return build(tensors, tensors, self._target, name=self.__name__, schedule="auto")

    def __getattr__(self, name: str) -> Any:
        """Say where a kernel's attributes are: there is a kernel for each kind of arguments."""
        if hasattr(Executable, name) and not name.startswith("_"):
            own = self.__dict__.get("__name__", "function")
            raise AttributeError(
                f"{own} is a function of arrays, with a kernel for each kind of them: that has {name}, "
                f"as {own}.executable({', '.join(self.__dict__.get('_names', ()))}).{name}"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def target(self) -> Target:
        """What kernels are built for."""
        return self._target

    def __repr__(self) -> str:
        return f"tensorlang.kernel({self.__name__}{self._signature}, {len(self._programs)} built)"


def _like(value: Any) -> Any:
    """An array of a shape that is written out; any other value as it is."""
    found = _SHAPE.fullmatch(value) if isinstance(value, str) else None
    if found is None or not (found["dtype"] or "x" in value):
        return value
    return _Like(tuple(map(int, found["shape"].split("x"))), np.dtype(dtypes.info(found["dtype"] or "float32").numpy))


def _number(extent: Any, is_open: bool) -> int | None:
    """A size as a constant of torch's compiler, or None for one that may change from call to call.

    A range has a length that is a number, where the compiler would try the size as a symbol.
    """
    return None if is_open else len(range(extent))


def _sized(extents: Any, sizes: dict[str, Any]) -> list[Any]:
    """Extents with a size variable for each name."""
    return [sizes.setdefault(e, size_var(e)) if isinstance(e, str) else e for e in extents]


def _found(known: dict[Any, Any], key: Any) -> Any:
    """What is known under a key, which might hold what cannot be one."""
    try:
        return known.get(key)
    except TypeError:
        return None


def _keep(known: dict[Any, Any], key: Any, found: Any) -> None:
    """Keep what was found under a key; where sizes are open, keys have no end."""
    if len(known) >= _MOST_KEYS:
        known.clear()
    known[key] = found
