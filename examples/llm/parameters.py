"""The sizes of a model, as the metadata of a GGUF file tell them."""

from __future__ import annotations

from dataclasses import dataclass

from tensorlang.errors import DefinitionError
from tensorlang.gguf import GgufFile


@dataclass(frozen=True, slots=True)
class Parameters:
    """The sizes of a Llama-like model: `width` of a token, `hidden` of the gate, heads of queries and of keys."""

    layers: int
    width: int
    hidden: int
    heads: int
    groups: int
    vocabulary: int
    context: int
    epsilon: float
    base: float

    @property
    def depth(self) -> int:
        """Numbers of a head."""
        return self.width // self.heads


def parameters_of(file: GgufFile) -> Parameters:
    """Read the sizes; DefinitionError for another architecture, or where one is missing or does not fit."""
    if file.metadata.get("general.architecture") != "llama":
        raise DefinitionError(f"{file.path} is a {file.metadata.get('general.architecture')}; llama models are read")

    def number(name: str, usual: float | None = None) -> float:
        value = file.metadata.get(f"llama.{name}", usual)
        if not isinstance(value, int | float) or value <= 0:
            raise DefinitionError(f"{file.path}: llama.{name} is {value}, and has to be a positive number")
        return value

    heads = int(number("attention.head_count"))
    found = Parameters(
        layers=int(number("block_count")),
        width=int(number("embedding_length")),
        hidden=int(number("feed_forward_length")),
        heads=heads,
        groups=int(number("attention.head_count_kv", heads)),
        vocabulary=file.tensors["token_embd.weight"].shape[0],
        context=int(number("context_length")),
        epsilon=number("attention.layer_norm_rms_epsilon"),
        base=number("rope.freq_base", 10000.0),
    )
    turned = int(number("rope.dimension_count", found.depth))
    if found.width % heads or heads % found.groups or turned != found.depth:
        raise DefinitionError(f"{file.path}: {found} with {turned} turned numbers of a head do not fit")
    return found
