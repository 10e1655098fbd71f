"""A network: one te program, with arrays for those of its inputs that are weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, TypeAlias

from tensorlang import dtypes, te
from tensorlang.dataclass import dataclass
from tensorlang.networks.refusal import Refusal
from tensorlang.networks.signature import Array as Array
from tensorlang.networks.signature import Origin as Origin
from tensorlang.networks.signature import Plain as Plain
from tensorlang.networks.signature import Signature as Signature
from tensorlang.networks.signature import Tail as Tail
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import Tensor

Value: TypeAlias = Tensor | Array
"""What a node reads or makes: a tensor of the program, or an array that is known before it runs."""


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """`inputs` are given at each call, in order; `outputs` are made. `weights`, by placeholder, may lie in any order.

    `input_names` and `output_names` are those of the model; `origins` tells which node of it made a stage. `signature`
    is how it is called, plainly unless given. `fallback`: the nodes that another runtime is called for, and why; some
    of them are the `tail`, which makes the model's results of the outputs here.
    """

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    weights: Mapping[str, Array]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    origins: Mapping[str, Origin] = field(default_factory=dict)
    signature: Signature | None = None
    fallback: tuple[Refusal, ...] = ()
    tail: Tail | None = None

    @property
    def input_shapes(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        """Shape and NumPy dtype of each input, by the model's name for it."""
        return {
            name: (tuple(extent_of(e) or 0 for e in t.shape), dtypes.info(t.dtype).numpy)
            for name, t in zip(self.input_names, self.inputs, strict=True)
        }

    def origin(self, stage: str) -> Origin:
        """The node that made a stage, by the stage's name, to which it may have added words."""
        name = stage
        while name and name not in self.origins:
            name = name.rpartition("_")[0]
        return self.origins.get(name, Origin(stage, stage))


@dataclass(slots=True)
class Weights:
    """Arrays that are known ahead, and the placeholders that stand for them; each array has one."""

    arrays: dict[str, Array] = field(default_factory=dict)
    _known: dict[int, tuple[Array, Tensor]] = field(default_factory=dict)

    def tensor(self, array: Array) -> Tensor:
        """The placeholder of an array."""
        if id(array) not in self._known:
            name = f"weight{len(self.arrays)}"
            self.arrays[name] = array
            self._known[id(array)] = array, te.placeholder(array.shape, array.dtype, name)
        return self._known[id(array)][1]
