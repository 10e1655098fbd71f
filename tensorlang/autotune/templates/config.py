"""What a template defines its knobs on: the space while it is collected, one point of it while it is tuned."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tensorlang.autotune.templates import candidates as c
from tensorlang.autotune.templates.entity import (
    AnnotateEntity,
    Entity,
    OtherOptionEntity,
    ReorderEntity,
    SplitEntity,
    entity_from_json,
)
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError, RecordError, shown
from tensorlang.ir.expr import Const
from tensorlang.location import caller
from tensorlang.schedule.names import nearest
from tensorlang.te.axis import Axis


@dataclass(frozen=True, slots=True)
class VirtualAxis:
    """An axis that stands for a loop while knobs are defined. `length` is -1 where a knob decides it."""

    name: str
    length: int = -1


AxisLike = VirtualAxis | Axis | int


def virtual_axis(axis: AxisLike, name: str = "axis") -> VirtualAxis:
    """An axis of te, or an extent, as a virtual axis."""
    match axis:
        case VirtualAxis():
            return axis
        case Axis():
            return VirtualAxis(axis.name, int(axis.extent.value) if isinstance(axis.extent, Const) else -1)
        case bool():
            pass
        case int() if axis >= 1:
            return VirtualAxis(name, axis)
    raise DefinitionError(f"an axis of a knob is an axis of te or its extent, got {shown(axis)}", caller())


class Config(ABC):
    """What `get_config` gives a template: it defines knobs, and holds what each was set to.

    `cfg["tile_x"]` is a split, an order, annotations (apply them with `.apply(s, op, ...)`), or a knob (`.val`).
    """

    is_fallback = False
    """True where the template was called plainly: nobody has chosen the configuration."""

    def __init__(self) -> None:
        self.flop = 0.0
        self.errors: list[str] = []
        self._entities: dict[str, Entity] = {}

    @abstractmethod
    def _define(self, name: str, what: str, make: Callable[[], Sequence[Entity]], extent: int = -1) -> None:
        """Take in the definition of a knob; `extent` of the axis that it splits."""

    @abstractmethod
    def multi_filter(self, filter: Callable[[Config], bool]) -> None:
        """Allow only configurations for which `filter(cfg)` is true: a limit on several knobs at once."""

    @staticmethod
    def axis(var: AxisLike) -> VirtualAxis:
        """An axis to define knobs on: of a loop, or of an extent."""
        return virtual_axis(var)

    reduce_axis = axis

    def define_split(
        self,
        name: str,
        axis: AxisLike,
        policy: str = "factors",
        *,
        num_outputs: int,
        max_factor: int | None = None,
        filter: Callable[[SplitEntity], bool] | None = None,
        no_tail: bool | None = None,
        candidate: Sequence[Sequence[int]] | None = None,
    ) -> list[VirtualAxis]:
        """Define how an axis is split into `num_outputs` parts.

        `policy`: `factors` (divisors of the extent), `power2` (powers of two up to it), `verbose` (both), `candidate`
        (the list given). `max_factor` bounds every part but the outermost, `filter(entity)` keeps some, `no_tail`
        keeps those that leave nothing over (the default of `factors`).
        """
        parent = virtual_axis(axis)
        if not isinstance(num_outputs, int) or num_outputs < 1:
            raise DefinitionError(
                f"define_split({name!r}) needs num_outputs of at least 1, got {shown(num_outputs)}", caller()
            )

        def make() -> Sequence[Entity]:
            _check_policy("define_split", name, policy, c.SPLITS)
            if policy == "candidate":
                return c.filtered(c.checked_splits(candidate or [], num_outputs, name), filter, name, "its list")
            if parent.length < 1:
                raise DefinitionError(
                    f"define_split({name!r}) needs an axis of known extent, got {parent.name}; give the extent itself, "
                    "as a number, or policy='candidate'"
                )
            found = c.splits(parent.length, num_outputs, policy, max_factor, no_tail)
            return c.filtered(found, filter, name, f"policy {policy!r} with max_factor={max_factor}, no_tail={no_tail}")

        self._define(name, f"split of {parent.name}={parent.length} by {policy}", make, parent.length)
        return [VirtualAxis(f"{name}.{n}") for n in range(num_outputs)]

    def define_reorder(
        self,
        name: str,
        axes: Sequence[AxisLike],
        policy: str = "all",
        *,
        interval: tuple[int, int] | None = None,
        candidate: Sequence[Sequence[AxisLike]] | None = None,
        spatial: Sequence[Sequence[AxisLike]] = (),
        reduce: Sequence[Sequence[AxisLike]] = (),
    ) -> list[VirtualAxis]:
        """Define the order of axes.

        `policy`: `identity`, `all`, `interval_all` (orders of the axes from `interval[0]` up to, without,
        `interval[1]`), `candidate` (the orders given), `interleave` and `interleave_cuda` (chains of `spatial` and
        `reduce` axes, merged from the outside).
        """
        given = [virtual_axis(a) for a in axes]

        def numbers(chains: Sequence[Sequence[AxisLike]]) -> list[list[int]]:
            return [[_position(given, virtual_axis(a), name) for a in chain] for chain in chains]

        def make() -> Sequence[Entity]:
            _check_policy("define_reorder", name, policy, c.ORDERS)
            if policy == "identity":
                return [ReorderEntity(list(range(len(given))))]
            if policy in ("all", "interval_all"):
                begin, end = (0, len(given)) if policy == "all" or interval is None else interval
                return c.Orders(len(given), begin, end)
            if policy == "candidate":
                return [ReorderEntity(order) for order in numbers(candidate or [])]
            return [c.interleave(numbers(spatial), numbers(reduce), policy)]

        self._define(name, f"order of {len(given)} axes by {policy}", make)
        return given

    def define_annotate(
        self, name: str, axes: Sequence[AxisLike], policy: str, *, num_anchor: int = 1
    ) -> list[VirtualAxis]:
        """Define how axes run.

        `policy`: words of `none`, `unroll`, `vec` and `try` (none) joined by `_`, each axis takes one of them;
        `bind_gpu` and `bind_gpu_virtual`; `locate_cache` (choose `num_anchor` axes to compute other stages at).
        """
        given = [virtual_axis(a) for a in axes]

        def make() -> Sequence[Entity]:
            if policy in ("bind_gpu", "bind_gpu_virtual"):
                return [c.gpu_binding(len(given), policy == "bind_gpu_virtual")]
            if policy == "locate_cache":
                return [AnnotateEntity(list(places)) for places in c.anchors(len(given), num_anchor)]
            return c.axis_annotations(len(given), policy)

        self._define(name, f"annotation of {len(given)} axes by {policy}", make)
        return given

    def define_knob(self, name: str, candidate: Sequence[Any]) -> None:
        """Define a plain knob: one of the values given."""
        self._define(name, f"knob of {list(candidate)}", lambda: [OtherOptionEntity(v) for v in candidate])

    def add_flop(self, flop: Any) -> None:
        """Add to the floating-point operations of one run, in which speeds are told."""
        count = flop.value if isinstance(flop, Const) else flop
        if not isinstance(count, int | float | np.number):
            raise DefinitionError(f"add_flop takes a number, got {shown(flop)}", caller())
        self.flop += float(count)

    def raise_error(self, msg: str) -> None:
        """Refuse this configuration: it will not be measured."""
        self.errors.append(msg)

    def valid(self) -> bool:
        """Whether nothing has refused this configuration."""
        return not self.errors

    def __getitem__(self, name: str) -> Any:
        if name not in self._entities:
            raise DefinitionError(f"no knob {name!r} is defined; {nearest(name, self._entities)}", caller())
        return self._entities[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entities)

    @property
    def entities(self) -> Mapping[str, Entity]:
        """What each knob is set to, by its name."""
        return self._entities


class ConfigEntity(Config):
    """One point of a space. `index` is its number there."""

    def __init__(self, index: int, entities: Mapping[str, Entity]) -> None:
        super().__init__()
        self.index = index
        self._entities = dict(entities)

    def opened(self) -> ConfigEntity:
        """The same point, for one more run of the template."""
        return ConfigEntity(self.index, self._entities)

    def _define(self, name: str, what: str, make: Callable[[], Sequence[Entity]], extent: int = -1) -> None:
        if name not in self._entities:
            known = ", ".join(self._entities) or "none"
            raise RecordError(f"the template defines {name!r}, which this configuration lacks; it has {known}")

    def multi_filter(self, filter: Callable[[Config], bool]) -> None:
        if not filter(self):
            self.raise_error("a multi_filter of the template does not allow it")

    def settings(self) -> dict[str, Any]:
        """What every knob is set to, as JSON data; a value that JSON does not have as text."""
        return {name: _plain(entity.to_json()) for name, entity in self._entities.items()}

    def to_json_dict(self) -> dict[str, Any]:
        """The configuration as AutoTVM's logs (0.2) hold it."""
        knobs = [[name, entity.kind, entity.to_json()] for name, entity in self._entities.items()]
        return {"index": self.index, "code_hash": None, "entity": knobs}

    @staticmethod
    def from_json_dict(json_dict: Mapping[str, Any]) -> ConfigEntity:
        """Read a configuration back, or one of AutoTVM's logs (0.2); RecordError when it is none."""
        try:
            index, knobs = int(json_dict["index"]), [(str(n), str(k), d) for n, k, d in json_dict["entity"]]
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(f"a configuration has 'index' and 'entity', got {shown(json_dict)}") from error
        return ConfigEntity(index, {name: entity_from_json(kind, data) for name, kind, data in knobs})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfigEntity) and self._entities == other._entities

    def __hash__(self) -> int:
        return hash(self.index)

    def __repr__(self) -> str:
        knobs = ", ".join(f"{name}={entity.to_json()}" for name, entity in self._entities.items())
        return f"ConfigEntity({self.index}: {knobs})"


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case np.generic():
            return _plain(value.item())
        case list() | tuple():
            return [_plain(part) for part in value]
    return repr(value)


def _check_policy(what: str, name: str, policy: str, known: Sequence[str]) -> None:
    if policy not in known:
        raise DefinitionError(f"{what}({name!r}) has no policy {shown(policy)}; {nearest(str(policy), known)}")


def _position(axes: Sequence[VirtualAxis], axis: VirtualAxis, name: str) -> int:
    if axis not in axes:
        known = ", ".join(a.name for a in axes)
        raise DefinitionError(f"define_reorder({name!r}): {axis.name} is not among its axes ({known})")
    return axes.index(axis)
