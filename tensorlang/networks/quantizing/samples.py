"""Inputs of a network that stand for those to come: from a folder, or from whatever gives them one by one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tensorlang.errors import ArgumentError
from tensorlang.files import is_folder
from tensorlang.networks.network import Array, Network, Plain

Samples: TypeAlias = str | os.PathLike[str] | Iterable[Any]
"""A folder, or samples: an array, a tuple of inputs, or a mapping of their names to arrays."""


def samples_of(network: Network, data: Samples) -> Iterator[tuple[str, list[Array]]]:
    """The inputs of each sample in order, and what to call it; ArgumentError for none, and for what does not fit.

    Of a folder each file is a sample: of .npy the array of the only input, of .npz arrays under the names of inputs.
    """
    number, folder = 0, isinstance(data, str | os.PathLike)
    for label, sample in _files(Path(data)) if isinstance(data, str | os.PathLike) else _numbered(data):
        number += 1
        try:
            yield label, _checked(network, _ordered(network, sample))
        except ArgumentError as error:
            raise ArgumentError(f"{label}: {error}") from error
    if not number:
        where = f"the folder {data} has no .npy and no .npz" if folder else "it is empty"
        raise ArgumentError(f"there are no samples of inputs: {where}; give some that are like those to come")


def by_shapes(
    network: Network, data: Samples, other: Callable[[Mapping[str, Sequence[int]]], Network]
) -> list[tuple[Network, Samples]]:
    """Samples with the network for their shapes: this one, or what `other` makes for shapes by names of inputs."""
    groups: dict[tuple[tuple[int, ...], ...], list[Any]] = {}
    for label, sample in _files(Path(data)) if isinstance(data, str | os.PathLike) else _numbered(data):
        try:
            shapes = tuple(np.shape(value) for value in _ordered(network, sample))
        except ArgumentError as error:
            raise ArgumentError(f"{label}: {error}") from error
        groups.setdefault(shapes, []).append(sample)
    own = tuple(shape for shape, _ in network.input_shapes.values())
    if not groups.keys() - {own}:
        return [(network, data)]
    names = network.input_names
    return [
        (network if shapes == own else other(dict(zip(names, shapes, strict=False))), samples)
        for shapes, samples in groups.items()
    ]


def _files(folder: Path) -> Iterator[tuple[str, Any]]:
    if not is_folder(folder):
        raise ArgumentError(f"there is no folder {folder}; samples of inputs are .npy and .npz files in a folder")
    for path in sorted(folder.iterdir()):
        if path.suffix in (".npy", ".npz"):
            yield str(path), read_arrays(path)


def read_arrays(path: str | Path) -> Array | dict[str, Array]:
    """The array of a .npy file, or those of a .npz file by name; ArgumentError for any other file."""
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found
        with found:
            return {name: found[name] for name in found.files}
    except MemoryError:
        raise
    except Exception as error:  # of NumPy, of zip files, of what these are packed by
        raise ArgumentError(f"{path} is no array of NumPy: {error}") from error


def _numbered(data: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(data, Mapping) or not isinstance(data, Iterable):
        raise ArgumentError(f"samples of inputs are a folder or an iterable of samples, got {type(data).__name__}")
    for number, sample in enumerate(data):
        yield f"sample {number}", sample


def _ordered(network: Network, sample: Any) -> list[Any]:
    """The inputs of a sample in order."""
    if isinstance(sample, Mapping):
        names = network.input_names
        if set(sample) != set(names):
            raise ArgumentError(f"the inputs are {', '.join(names)}, got {', '.join(map(str, sample)) or 'none'}")
        return [sample[name] for name in names]
    inputs = sample if isinstance(sample, tuple | list) else (sample,)
    return list((network.signature or Plain(network.name)).flat(inputs, {}))


def _checked(network: Network, inputs: list[Any]) -> list[Array]:
    wanted = network.input_shapes
    if len(inputs) != len(wanted):
        raise ArgumentError(f"the network has {len(wanted)} inputs ({', '.join(wanted)}), got {len(inputs)}")
    found = []
    for value, (name, (shape, dtype)) in zip(inputs, wanted.items(), strict=True):
        array = np.from_dlpack(value) if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__") else value
        if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != dtype:
            got = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else type(value).__name__
            raise ArgumentError(f"the input {name} is {np.dtype(dtype)}{list(shape)}, got {got}")
        if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            raise ArgumentError(f"the input {name} has numbers that are not finite")
        found.append(array)
    return found
