"""Which configuration a template has that is called plainly, in AutoTVM's words for it."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import Token
from types import TracebackType
from typing import Any, Self

from tensorlang.autotune.templates.config import ConfigEntity
from tensorlang.autotune.templates.registry import Chooser, Scheduled, TemplateFunction, chooser
from tensorlang.autotune.templates.task import TemplateTask
from tensorlang.errors import DefinitionError, shown
from tensorlang.location import caller


class _Chosen:
    """A context in which somebody answers when templates are called plainly, in place of those around."""

    def __init__(self, choose: Chooser | None) -> None:
        self._choose = choose
        self._tokens: list[Token[Chooser | None]] = []

    def __enter__(self) -> Self:
        self._tokens.append(chooser.set(self._choose))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        chooser.reset(self._tokens.pop())


class FallbackContext(_Chosen):
    """A context in which templates have nobody's choice: `with autotune.FallbackContext():`.

    Each gives the schedule of its first configuration, and sees that in `cfg.is_fallback`; records that are in use
    around are not asked.
    """

    def __init__(self) -> None:
        super().__init__(None)


class ApplyConfig(_Chosen):
    """A context in which templates have one configuration: `with autotune.task.ApplyConfig(config):`.

    ScheduleError where it is not legal, RecordError where a template defines a knob that it lacks.
    """

    def __init__(self, config: ConfigEntity) -> None:
        if not isinstance(config, ConfigEntity):
            raise DefinitionError(f"ApplyConfig takes a configuration of a task, got {shown(config)}", caller())
        super().__init__(lambda function, args: function.run(config.opened, args)[1])


class ApplyFixedConfig(_Chosen):
    """A context in which templates of these names, with the arguments of a task, have its first configuration.

    Others are as in a FallbackContext.
    """

    def __init__(self, tasks: Sequence[TemplateTask], schedule_names: str | Sequence[str]) -> None:
        names = [schedule_names] if isinstance(schedule_names, str) else list(schedule_names)

        def choose(function: TemplateFunction, args: tuple[Any, ...]) -> Scheduled | None:
            fit = (t for t in tasks if t.name == function.name and t.args == args and t.name in names)
            task = next(fit, None)
            return None if task is None else task.instantiate(task.config_space.get(0))

        super().__init__(choose)
