"""How a model is to be held in fewer bits, as those are told who compile it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tensorlang.dataclass import dataclass
from tensorlang.errors import ArgumentError
from tensorlang.files import is_folder
from tensorlang.runtime.digest import digest_of, digest_of_file
from tensorlang.target.spec import Target

if TYPE_CHECKING:
    from tensorlang.networks.network import Network
    from tensorlang.networks.quantizing.samples import Samples

INTO = ("int8", "weights", "bfloat16")
Shapes: TypeAlias = Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Quantization:
    """How `tensorlang.compile` and `compile_dynamic` hold a model in fewer bits.

    `into`: "int8", with ranges from the samples `data` (`tensorlang.quantize`, which has `method`, `keep` and
    `percentile`), "weights" alone (`quantize_weights`, with `keep` and `most_uses`), or "bfloat16" (`to_bfloat16`, with
    `keep`). Samples of a model of open sizes may have other shapes than those that it is compiled for: their ranges
    are taken for it at their own shapes. Raises ArgumentError for other words, for int8 without samples, and for
    samples where none are needed.
    """

    into: str = "int8"
    data: Samples | None = None
    method: str = "minmax"
    keep: Sequence[str] = ()
    percentile: float = 99.999
    most_uses: int | None = 256

    def __post_init__(self) -> None:
        if self.into not in INTO:
            raise ArgumentError(f"models are quantized into {', '.join(INTO)}, got {self.into!r}")
        if self.into == "int8" and self.data is None:
            raise ArgumentError("int8 takes its ranges from samples of inputs: give data, a folder or an iterable")
        if self.into != "int8" and self.data is not None:
            raise ArgumentError(f"{self.into} needs no samples; data are for int8")
        if not isinstance(self.data, str | os.PathLike | Mapping | None) and isinstance(self.data, Iterable):
            object.__setattr__(self, "data", tuple(self.data))  # they are read once for the key of the cache, and again

    def applied(self, network: Network, target: Target, other: Callable[[Shapes], Network] | None) -> Network:
        """The network in fewer bits; `other` makes it for the shapes of samples that are not those of the network."""
        from tensorlang.networks.quantizing.bfloat16 import to_bfloat16
        from tensorlang.networks.quantizing.samples import by_shapes
        from tensorlang.networks.quantizing.static import quantize_by
        from tensorlang.networks.quantizing.weights import quantize_weights

        match self.into:
            case "weights":
                return quantize_weights(network, self.keep, self.most_uses)
            case "bfloat16":
                return to_bfloat16(network, self.keep, target)
        assert self.data is not None
        groups = [(network, self.data)] if other is None else by_shapes(network, self.data, other)
        return quantize_by(network, groups, self.method, self.keep, self.percentile)

    def to_json(self) -> list[Any]:
        """All that it says, as plain data, with a digest of the samples."""
        keep = [self.keep] if isinstance(self.keep, str) else list(self.keep)
        return [self.into, _digest(self.data), self.method, keep, self.percentile, self.most_uses]


def quantization_of(given: Quantization | str | os.PathLike[str] | None) -> Quantization | None:
    """What is said by a word: `weights`, `bfloat16`, or a folder of samples for int8."""
    if given is None or isinstance(given, Quantization):
        return given
    if isinstance(given, str) and given in INTO[1:]:
        return Quantization(given)
    if not isinstance(given, str | os.PathLike):
        words = ", ".join(INTO[1:])
        raise ArgumentError(f"quantize is a folder of samples, {words}, or a Quantization; got {type(given).__name__}")
    return Quantization(data=given)


def _digest(data: Any) -> Any:
    """Of samples: of the files in a folder, or of arrays in nests."""
    match data:
        case None:
            return None
        case str() | os.PathLike():
            folder = Path(data)
            files = sorted(folder.iterdir()) if is_folder(folder) else []
            return [[file.name, digest_of_file(file)] for file in files if file.suffix in (".npy", ".npz")]
        case Mapping():
            return {str(name): _digest(value) for name, value in data.items()}
        case tuple() | list():
            return [_digest(value) for value in data]
    array = np.asarray(data)
    if array.dtype.hasobject:
        raise ArgumentError(
            f"samples are arrays, tuples of them, or mappings of names to them; got {type(data).__name__}"
        )
    return [str(array.dtype), array.shape, digest_of([np.ascontiguousarray(array).reshape(-1).view(np.uint8).data])]
