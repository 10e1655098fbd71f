"""Search policies in auto_scheduler's words: rules of one's own that write sketches, and what is known before."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from tensorlang.autotune.dag import State
from tensorlang.autotune.records.log import LogPath
from tensorlang.autotune.search.sketch import Sketch
from tensorlang.autotune.search.sketch_search import SketchSearch
from tensorlang.autotune.search_task import SearchTask
from tensorlang.autotune.space.draft import Draft, sketch_of
from tensorlang.autotune.task import Task
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError, ScheduleError, shown
from tensorlang.location import caller
from tensorlang.schedules.default import schedule_others
from tensorlang.te.program import read_buffers

_MOST_STATES = 256
"""That rules may make of a program: one that returns its own state again would never end."""


@dataclass(frozen=True, slots=True)
class XGBModel:
    """The model that judges candidates: an estimate that learns from what was measured, however much that is."""

    verbose: int = 1
    num_warmup_sample: int = 100
    seed: int | None = None
    model_file: str | os.PathLike[str] | None = None
    adaptive_training: bool = False


@dataclass(frozen=True, slots=True)
class RandomModel:
    """Accepted for auto_scheduler's sake: candidates are judged by the estimate, which costs no more."""


@dataclass(frozen=True, slots=True)
class PreloadMeasuredStates:
    """Go on from what a log holds of the task: it is not measured again, and it teaches."""

    filename: LogPath


@dataclass(frozen=True, slots=True)
class PreloadCustomSketchRule:
    """A rule that writes sketches, before those of the library shape what it leaves.

    Stages are visited from the last one on. `meet_condition_func(policy, state, stage_id)` returns PASS, APPLY, or
    APPLY_AND_SKIP_REST, which leaves later rules out; `apply_func(policy, state, stage_id)` returns pairs of a state
    and the stage to go on with, -1 at the end. What the rule leaves open (`state.split(stage, axis, [None])`) is for
    the tuner to decide.
    """

    meet_condition_func: Callable[[SketchPolicy, State, int], int]
    apply_func: Callable[[SketchPolicy, State, int], Sequence[Any]]
    rule_name: str = "CustomSketchRule"

    PASS: ClassVar[int] = 0
    APPLY: ClassVar[int] = 1
    APPLY_AND_SKIP_REST: ClassVar[int] = 2


class SketchPolicy:
    """How a task is searched: by sketches of rules of one's own, if there are any, else by the library's.

    `params` is accepted for auto_scheduler's sake. DefinitionError for what is no SearchTask, or no callback.
    """

    def __init__(
        self,
        task: SearchTask,
        program_cost_model: XGBModel | RandomModel | None = None,
        params: Mapping[str, Any] | None = None,
        seed: int | None = None,
        verbose: int = 1,
        init_search_callbacks: Sequence[PreloadMeasuredStates | PreloadCustomSketchRule] | None = None,
    ) -> None:
        given = tuple(init_search_callbacks or ())
        for one in given:
            if not isinstance(one, PreloadMeasuredStates | PreloadCustomSketchRule):
                wanted = "PreloadMeasuredStates or PreloadCustomSketchRule"
                raise DefinitionError(f"init_search_callbacks are {wanted}, got {shown(one)}", caller())
        if not isinstance(task, SearchTask):
            raise DefinitionError(f"SketchPolicy takes a SearchTask, got {shown(task)}", caller())
        self.search_task, self.program_cost_model = task, program_cost_model
        self.params, self.seed, self.verbose = dict(params or {}), seed or 0, verbose
        self._rules = tuple(one for one in given if isinstance(one, PreloadCustomSketchRule))
        self._logs = tuple(one.filename for one in given if isinstance(one, PreloadMeasuredStates))

    def generate_sketches(self, print_for_debug: bool = False) -> list[State]:
        """Return the states that the rules make, what they left shaped as the library does."""
        states = [State(draft) for draft in self._drafts(self.search_task.task)]
        if print_for_debug:
            print(*states, sep="\n\n")
        return states

    def search(self) -> SketchSearch:
        """A search of the task by this policy. ScheduleError where no state of a rule is legal."""
        task = self.search_task.task
        made = SketchSearch(task, self.seed, self._sketches(task) if self._rules else None)
        for log in self._logs:
            made.preload(log)
        return made

    def _sketches(self, task: Task) -> list[Sketch]:
        found, refused = list[Sketch](), list[ScheduleError]()
        for number, draft in enumerate(self._drafts(task)):
            try:
                found.append(sketch_of(f"{self._rules[0].rule_name} {number}", draft))
            except ScheduleError as error:
                refused.append(error)
        if not found:
            raise (
                refused[0]
                if refused
                else ScheduleError("autotune", f"the rule {self._rules[0].rule_name} makes no state of {task.workload}")
            )
        return found

    def _drafts(self, task: Task) -> Iterator[Draft]:
        for state in self._states(task):
            draft = state.schedule
            assert isinstance(draft, Draft)
            schedule_others(draft, frozenset(), task.target, draft.program)
            yield draft

    def _states(self, task: Task) -> Iterator[State]:
        """The states of which no stage is left to visit."""
        first = State(Draft.of(task.outputs))
        pending = [(first, len(first.stages) - 1)]
        made = 0
        while pending:
            state, stage = pending.pop(0)
            if stage < 0:
                yield state
                continue
            pending += self._visited(state, stage)
            made += 1
            if made > _MOST_STATES:
                raise DefinitionError(
                    f"rules visited {made} stages: each state has to go on with an earlier one", caller()
                )

    def _visited(self, state: State, stage: int) -> list[tuple[State, int]]:
        found: list[tuple[State, int]] = []
        for rule in self._rules:
            met = rule.meet_condition_func(self, state.copy(), stage)
            if met != rule.PASS:
                found += [_state(rule, one) for one in _pairs(rule.apply_func(self, state.copy(), stage))]
            if met == rule.APPLY_AND_SKIP_REST:
                return found
        return [*found, (state, stage - 1)]


def _pairs(made: Sequence[Any]) -> list[Any]:
    """What a rule returned: pairs, or one pair alone."""
    return [made] if len(made) == 2 and isinstance(made[0], State) else list(made)


def _state(rule: PreloadCustomSketchRule, made: Any) -> tuple[State, int]:
    if not isinstance(made, list | tuple) or len(made) != 2 or not isinstance(made[0], State):
        wanted = "pairs of a state and the number of the stage to go on with"
        raise DefinitionError(f"the rule {rule.rule_name} returns {wanted}, got {shown(made)}", caller())
    return made[0], int(made[1])


class Consumers(dict[int, list[int]]):
    """The stages that read one, by their numbers; `items()` can be indexed, as TVM's can."""

    def items(self) -> list[tuple[int, list[int]]]:  # type: ignore[override]
        return list(super().items())


def consumers_of(task: SearchTask, state: State, stage_id: int) -> Consumers:
    """Return the stages that read a stage of a state."""
    del task
    name = state.schedule.stages[stage_id].name
    program = state.schedule.program
    readers = {op.name for op in program.ops if name in {program.producer[b] for b in read_buffers(op)}}
    return Consumers({n: [n] for n, stage in enumerate(state.schedule.stages) if stage.name in readers})


def is_elementwise_match(task: SearchTask, state: State, stage_id: int, target_stage_id: int) -> bool:
    """Return whether a stage has the shape of another one, which reads its elements in order and none of it twice."""
    del task
    one, other = (state.schedule.stages[n].op for n in (stage_id, target_stage_id))
    shapes = [[str(n) for n in op.output(0).shape] for op in (one, other)]
    return shapes[0] == shapes[1] and not getattr(other, "reduce_axis", ())


def __getattr__(name: str) -> Any:
    known = {"SearchPolicyUtilsGetConsumers": consumers_of, "SearchPolicyUtilsIsElementwiseMatch": is_elementwise_match}
    if name in known:
        return known[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
