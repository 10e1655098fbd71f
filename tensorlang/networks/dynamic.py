"""Models of open sizes: a set of kernels for each shape that is met, the last ones of which are kept."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from tensorlang.errors import ArgumentError, DefinitionError
from tensorlang.networks.content import content_of
from tensorlang.networks.model import Model
from tensorlang.networks.onnx.fallback import check_fallback
from tensorlang.networks.onnx.reading import data_files, declared_inputs, opened, with_data
from tensorlang.networks.quantization import Quantization, quantization_of
from tensorlang.networks.signature import Array, Plain
from tensorlang.networks.starting import compile_model
from tensorlang.target import parse
from tensorlang.target.spec import Target

Shapes: TypeAlias = tuple[tuple[int, ...], ...]
_compiling = threading.Lock()
"""isl counts on one thread at a time."""


def compile_dynamic(
    model: str | os.PathLike[str] | Any,
    target: str | Target | None = None,
    kept: int = 8,
    numerics: str = "default",
    known: Mapping[str, npt.ArrayLike] | None = None,
    fallback: str | None = None,
    quantize: Quantization | str | os.PathLike[str] | None = None,
) -> DynamicModel:
    """Return a model that takes inputs of all shapes that an ONNX model (a file, or a ModelProto) leaves open.

    A call with shapes that were not met before compiles kernels for exactly these, or starts them from the cache of
    compiled models (files only), as `tensorlang.compile` does, and those of the last `kept` shapes stay in memory;
    `numerics`, `known`, `fallback` and `quantize` are as there; samples for int8 may have any shapes, and are run for
    each shape that is compiled. `for_shapes` compiles ahead. Calls raise what `compile` raises,
    ArgumentError for inputs that do not fit the model; this raises DefinitionError for what is no model, and
    ArgumentError when none is kept.
    """
    if kept < 1:
        raise ArgumentError(f"at least one set of kernels is kept, got {kept}")
    check_fallback(fallback)
    return DynamicModel(model, parse(target), kept, numerics, known or {}, fallback, quantization_of(quantize))


class DynamicModel:
    """An ONNX model whose sizes are open, compiled for each shape of its inputs that is met.

    A call takes inputs and returns outputs as a `Model` does. Threads may call it at once: each shape is compiled once,
    and shapes that are there do not wait for others. Weights that kernels for several shapes read alike are shared.
    """

    def __init__(
        self,
        model: Any,
        target: Target,
        kept: int,
        numerics: str,
        known: Mapping[str, npt.ArrayLike],
        fallback: str | None,
        quantize: Quantization | None = None,
    ) -> None:
        """See `compile_dynamic`."""
        proto, files = _opened(model)
        self.name, declared = declared_inputs(proto)
        self.inputs = {name: dims for name, dims in declared.items() if name not in known}
        self._model, self._files, self._content = model, files, _content(model, files)
        self._target, self._kept, self._numerics, self._known = target, kept, numerics, known
        self._fallback, self._quantize = fallback, quantize
        self._models: OrderedDict[Shapes, Future[Model]] = OrderedDict()
        self._weights: WeakValueDictionary[tuple[Any, ...], Array] = WeakValueDictionary()
        self._lock = threading.Lock()

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        """Run the network for the shapes of the inputs; ArgumentError for inputs that do not fit."""
        given = Plain(self.name).flat(inputs, keywords)
        return self._for(tuple(tuple(int(n) for n in np.shape(value)) for value in given))(*given)

    def for_shapes(self, *shapes: Sequence[int]) -> Model:
        """The model for some shapes of its inputs, in order; it stays what it is when others take its place."""
        return self._for(tuple(tuple(int(n) for n in shape) for shape in shapes))

    @property
    def input_names(self) -> tuple[str, ...]:
        """The model's names of its inputs, in order."""
        return tuple(self.inputs)

    @property
    def shapes(self) -> tuple[Shapes, ...]:
        """The shapes of inputs for which there are kernels, those used last at the end."""
        with self._lock:
            return tuple(shapes for shapes, model in self._models.items() if model.done())

    def _for(self, shapes: Shapes) -> Model:
        with self._lock:
            found = self._models.get(shapes)
            made = None if found is not None else Future[Model]()
            if made is not None:
                found = self._models[shapes] = made
            else:
                self._models.move_to_end(shapes)
        if made is not None:
            self._compile(shapes, made)
        assert found is not None
        return found.result()

    def _compile(self, shapes: Shapes, made: Future[Model]) -> None:
        """Make the model for shapes, for all threads that wait; what fails is tried again by the next call."""
        try:
            named = self._checked(shapes)
            with _compiling:
                if _content(self._model, self._files) != self._content:
                    raise DefinitionError(f"{self._model} has changed since it was opened")
                how = self._numerics, self._known, self._fallback, self._quantize
                model = compile_model(self._model, self._target, None, named, *how)
            model.weights = {name: self._shared(array) for name, array in model.weights.items()}
        except BaseException as error:
            with self._lock:
                del self._models[shapes]
            made.set_exception(error)
            return
        made.set_result(model)
        with self._lock:
            ready = [other for other, model in self._models.items() if model.done()]
            for other in ready[: -self._kept]:
                del self._models[other]

    def _checked(self, shapes: Shapes) -> dict[str, tuple[int, ...]]:
        """Shapes by the names of inputs; ArgumentError for those that the model does not have."""
        if len(shapes) != len(self.inputs):
            raise ArgumentError(
                f"{self.name} takes {len(self.inputs)} inputs ({', '.join(self.inputs)}), got {len(shapes)}"
            )
        sizes: dict[str, int] = {}
        for (name, dims), shape in zip(self.inputs.items(), shapes, strict=True):
            fits = len(dims) == len(shape) and all(
                n == (sizes.setdefault(d, n) if isinstance(d, str) else n if d is None else d)
                for d, n in zip(dims, shape, strict=True)
            )
            if not fits:
                wanted = ", ".join(f"{d}={sizes[d]}" if d in sizes else str(d or "?") for d in dims)
                raise ArgumentError(f"{self.name}: the input {name} has the shape ({wanted}), got {shape}")
        return dict(zip(self.inputs, shapes, strict=True))

    def _shared(self, array: Array) -> Array:
        """An array like this one that is there already, or this one."""
        key = (
            str(array.dtype),
            array.shape,
            sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).digest(),
        )
        with self._lock:
            return self._weights.setdefault(key, array)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name} [{', '.join(str(d or '?') for d in dims)}]" for name, dims in self.inputs.items())
        return f"DynamicModel({self.name}: {inputs}; compiled for {len(self.shapes)} shapes)"


def _opened(model: Any) -> tuple[Any, list[str]]:
    """A model with its weights, and the files of these beside it; none for models that are in no file."""
    if not isinstance(model, str | os.PathLike):
        return model, []
    proto = opened(Path(model))
    files = data_files(proto)
    return with_data(proto, Path(model)), files


def _content(model: Any, files: Sequence[str]) -> str:
    """What changes with a file and those of its weights; nothing for models that are none."""
    return content_of(Path(model), files) if isinstance(model, str | os.PathLike) else ""
