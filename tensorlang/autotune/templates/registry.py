"""Template functions by name, and the configuration that each run of one sees."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar, overload

from tensorlang.autotune.arguments import with_tensors
from tensorlang.autotune.templates.config import Config
from tensorlang.autotune.templates.space import ConfigSpace
from tensorlang.errors import DefinitionError, ScheduleError, shown
from tensorlang.location import caller
from tensorlang.schedule import Schedule
from tensorlang.schedule.names import nearest
from tensorlang.schedule.schedule import proven_at_the_end
from tensorlang.te.operation import Tensor

C = TypeVar("C", bound=Config)
Scheduled = tuple[Schedule, list[Tensor]]
Chooser = Callable[["TemplateFunction", tuple[Any, ...]], Scheduled | None]

_config: ContextVar[Config | None] = ContextVar("tensorlang_template_config", default=None)
chooser: ContextVar[Chooser | None] = ContextVar("tensorlang_template_chooser", default=None)
"""Who answers when a template is called plainly: a history in use, or nobody."""

_templates: dict[str, TemplateFunction] = {}
SHIPPED = {
    "batch_matmul.x86": "tensorlang.autotune.templates.x86.batch_matmul",
    "conv2d_NCHWc.x86": "tensorlang.autotune.templates.x86.conv2d",
    "dense_nopack.x86": "tensorlang.autotune.templates.x86.dense",
    "dense_pack.x86": "tensorlang.autotune.templates.x86.dense",
}
"""Templates that come with tensorlang -> their modules, imported when first asked for."""


class TemplateFunction:
    """A function with knobs. Called plainly, it gives the best known schedule, or that of its first configuration."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self.function = function
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any) -> Scheduled:
        choose = chooser.get()
        known = None if choose is None else choose(self, args)
        return self.run(lambda: ConfigSpace(is_fallback=True), args)[1] if known is None else known

    def run(self, fresh: Callable[[], C], args: Sequence[Any]) -> tuple[C, Scheduled]:
        """Run the function on a `fresh` configuration; returns that, and the schedule, proven legal, with its tensors.

        Schedules are proven once, at the end. DefinitionError when it returns no schedule and tensors.
        """
        config = fresh()
        try:
            with proven_at_the_end(f"template {self.name!r}"):
                return config, self._run(config, args)
        except ScheduleError:  # once more, proving every step, to name the one that is refused
            config = fresh()
            return config, self._run(config, args)

    def _run(self, config: Config, args: Sequence[Any]) -> Scheduled:
        token = _config.set(config)
        try:
            made = self.function(*with_tensors(self.function, args))
        finally:
            _config.reset(token)
        match made:
            case (Schedule() as s, list() | tuple() as tensors) if all(isinstance(t, Tensor) for t in tensors):
                return s, list(tensors)
        raise DefinitionError(f"template {self.name!r} returns (schedule, [inputs, outputs]), got {shown(made)}")

    def __repr__(self) -> str:
        return f"template({self.name!r})"


@overload
def template(name: str) -> Callable[[Callable[..., Any]], TemplateFunction]: ...


@overload
def template(name: Callable[..., Any]) -> TemplateFunction: ...


def template(name: str | Callable[..., Any]) -> TemplateFunction | Callable[[Callable[..., Any]], TemplateFunction]:
    """Make a function a template: `@autotune.template("name")`.

    The function takes numbers and texts, defines knobs on `autotune.get_config()`, and returns the schedule and its
    tensors, inputs first. `autotune.task.create` makes a task of it.

        >>> from tensorlang import autotune, te
        >>> @autotune.template("docs/doubled")
        ... def doubled(n):
        ...     x = te.placeholder((n,), name="x")
        ...     y = te.compute((n,), lambda i: x[i] * 2, name="y")
        ...     s, knobs = te.create_schedule(y.op), autotune.get_config()
        ...     knobs.define_split("tile", y.op.axis[0], num_outputs=2)
        ...     outer, inner = knobs["tile"].apply(s, y, y.op.axis[0])
        ...     return s, [x, y]
        >>> len(autotune.task.create("docs/doubled", (64,), "llvm").config_space)
        7
    """
    if not isinstance(name, str):
        return _register(name.__name__, name)
    return functools.partial(_register, name)


def _register(name: str, function: Callable[..., Any]) -> TemplateFunction:
    made = TemplateFunction(name, function)
    _templates[name] = made
    return made


def get_config() -> Config:
    """The configuration of this run of a template: define knobs on it, and use what they are set to.

    >>> from tensorlang import autotune, te
    >>> @autotune.template("docs/tripled")
    ... def tripled(n):
    ...     x = te.placeholder((n,), name="x")
    ...     y = te.compute((n,), lambda i: x[i] * 3, name="y")
    ...     s, knobs = te.create_schedule(y.op), autotune.get_config()
    ...     knobs.define_split("tile", y.op.axis[0], num_outputs=2)
    ...     outer, inner = knobs["tile"].apply(s, y, y.op.axis[0])
    ...     return s, [x, y]
    >>> len(autotune.task.create("docs/tripled", (64,), "llvm").config_space)
    7
    """
    config = _config.get()
    if config is None:
        raise DefinitionError("get_config() is for the body of a function with @autotune.template", caller())
    return config


def find_template(name: str) -> TemplateFunction:
    """The template of a name; DefinitionError names what there is."""
    if name not in _templates and name in SHIPPED:
        importlib.import_module(SHIPPED[name])
    if name not in _templates:
        raise DefinitionError(f"no template {name!r}; {nearest(name, {*_templates, *SHIPPED})}", caller())
    return _templates[name]
