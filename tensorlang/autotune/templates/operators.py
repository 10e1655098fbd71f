"""Templates in two parts, as `topi` has them: what is computed of tensors, and how that is scheduled.

Both take the configuration first. Together they are a template whose arguments are tensors, by the name of both.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, overload
from weakref import WeakKeyDictionary

from tensorlang.autotune.templates.config import Config, ConfigEntity
from tensorlang.autotune.templates.registry import Scheduled, TemplateFunction, chooser, get_config, template
from tensorlang.autotune.templates.space import ConfigSpace
from tensorlang.errors import DefinitionError, shown
from tensorlang.location import caller
from tensorlang.te.operation import Operation, Tensor
from tensorlang.te.program import producers_first

Function = Callable[..., Any]
_computes: dict[str, Function] = {}
_schedules: dict[str, Function] = {}
_made_with: WeakKeyDictionary[Operation, Config] = WeakKeyDictionary()
"""The configurations with which operations were made outside of tasks: their schedules have the same."""


@overload
def register_topi_compute(task_name: str, func: None = None) -> Callable[[Function], Function]: ...
@overload
def register_topi_compute(task_name: str, func: Function) -> Function: ...
def register_topi_compute(task_name: str, func: Function | None = None) -> Any:
    """Make `func(cfg, *tensors and numbers)` the first part of a template: what it computes, a tensor or several.

    `autotune.task.create(task_name, args)` takes the arguments behind the configuration. Called without it, outside of
    tasks, the function has the best configuration of the records in use, or the first one, and so has the schedule.

        >>> from tensorlang import autotune, te
        >>> @autotune.register_topi_compute("docs/halved")
        ... def halved(cfg, x):
        ...     return te.compute(x.shape, lambda i: x[i] / 2, name="y")
        >>> @autotune.register_topi_schedule("docs/halved")
        ... def schedule_halved(cfg, outs):
        ...     s = te.create_schedule([t.op for t in outs])
        ...     cfg.define_split("tile", outs[0].op.axis[0], num_outputs=2)
        ...     cfg["tile"].apply(s, outs[0], outs[0].op.axis[0])
        ...     return s
        >>> x = te.placeholder((64,), name="x")
        >>> len(autotune.task.create("docs/halved", args=(x,), target="llvm").config_space)
        7
    """
    if func is None:
        return functools.partial(register_topi_compute, task_name)
    _computes[task_name] = func
    _register(task_name)

    @functools.wraps(func)
    def computed(*args: Any) -> Any:
        config = _config_of(task_name, args)
        made = func(config, *args)
        _made_with.update(dict.fromkeys((t.op for t in _outputs(task_name, made)), config))
        return made

    return computed


@overload
def register_topi_schedule(task_name: str, func: None = None) -> Callable[[Function], Function]: ...
@overload
def register_topi_schedule(task_name: str, func: Function) -> Function: ...
def register_topi_schedule(task_name: str, func: Function | None = None) -> Any:
    """Make `func(cfg, outs)` the second part of a template: the schedule of what `register_topi_compute` names so.

    Called without the configuration, the function has the one that `outs`, or what they are made from, were made with.

        >>> from tensorlang import autotune, te
        >>> @autotune.register_topi_schedule("docs/plain")
        ... def schedule_plain(cfg, outs):
        ...     return te.create_schedule([t.op for t in outs])
        >>> x = te.placeholder((64,), name="x")
        >>> len(schedule_plain([te.compute((64,), lambda i: x[i] + 1)]).stages)
        2
    """
    if func is None:
        return functools.partial(register_topi_schedule, task_name)
    _schedules[task_name] = func
    _register(task_name)

    @functools.wraps(func)
    def scheduled(outs: Any, *others: Any) -> Any:
        made = _outputs(task_name, outs)
        known = (_made_with.get(op) for op in producers_first([t.op for t in made]).values())
        config = next((one for one in known if one is not None), None)
        return func(ConfigSpace(is_fallback=True) if config is None else config, made, *others)

    return scheduled


def _register(name: str) -> None:
    """Register the template, where both parts are known."""
    if name in _computes and name in _schedules:
        template(name)(_both(name))


def _both(name: str, seen: Callable[[Config], object] = lambda config: None) -> Function:
    """Both parts as the function of a template, which tells the configurations that it sees."""
    compute, schedule = _computes[name], _schedules[name]

    @functools.wraps(compute)
    def both(*args: Any) -> Scheduled:
        config = get_config()
        seen(config)
        outputs = _outputs(name, compute(config, *args))
        return schedule(config, outputs), [*(arg for arg in args if isinstance(arg, Tensor)), *outputs]

    _, *parameters = inspect.signature(compute).parameters.values()
    both.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return both


def _config_of(name: str, args: tuple[Any, ...]) -> Config:
    """The configuration that somebody chooses for a template; a first one where nobody does."""
    choose, seen = chooser.get(), list[Config]()
    if choose is not None and name in _schedules and choose(TemplateFunction(name, _both(name, seen.append)), args):
        (*_, last) = seen
        if isinstance(last, ConfigEntity):
            return last.opened()
    return ConfigSpace(is_fallback=True)


def _outputs(name: str, made: Any) -> list[Tensor]:
    found = [made] if isinstance(made, Tensor) else list(made) if isinstance(made, list | tuple) else []
    if not found or not all(isinstance(one, Tensor) for one in found):
        raise DefinitionError(f"template {name!r} is of a tensor, or a list of tensors, got {shown(made)}", caller())
    return found
