"""A decoder of a GGUF file: a cache of keys and values, prompts in pieces, and a token of each sequence at a time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from examples.llm import kernels
from examples.llm.parameters import Parameters, parameters_of
from examples.llm.steps import Layer, Step
from examples.llm.weights import Weights, halves, weights_of
from tensorlang import gguf, nd, te, topi
from tensorlang.errors import DefinitionError, shown
from tensorlang.gguf import GgufTensor

Array = npt.NDArray[Any]
_NAMES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


@dataclass(slots=True)
class Decoder:
    """A model, and the sequences that it writes: `lengths` int32[batch] tokens of each are in the cache."""

    parameters: Parameters
    embeddings: GgufTensor
    layers: list[Layer]
    norm: Array
    output: Weights
    tables: tuple[Array, Array]
    lengths: Array
    piece: int
    steps: dict[tuple[int | None, int], Step] = field(default_factory=dict)

    @classmethod
    def load(cls, path: str | os.PathLike[str], batch: int = 1, context: int = 0, piece: int = 64) -> Decoder:
        """Lay out the weights of a file for some sequences of up to `context` tokens (that of the model unless given).

        Prompts are read in pieces of so many tokens. DefinitionError for what is no model of this kind.
        """
        file = gguf.load(path)
        p = parameters_of(file)
        if context:
            p = replace(p, context=context)
        tensors = file.tensors
        order = {"attn_q": halves(p.heads, p.depth), "attn_k": halves(p.groups, p.depth)}

        def layer(number: int) -> Layer:
            def named(name: str) -> GgufTensor:
                full = f"blk.{number}.{name}.weight"
                if full not in tensors:
                    raise DefinitionError(f"{file.path} has no tensor {full}")
                return tensors[full]

            norms = [np.array(named(name).array, np.float32) for name in ("attn_norm", "ffn_norm")]
            caches = nd.empty_together([te.placeholder((batch, p.groups, p.context, p.depth), "float16")] * 2)
            for cache in caches:
                cache[...] = 0
            return Layer(norms, weights_of([(named(name), order.get(name)) for name in _NAMES]), caches)

        factors = tensors["rope_freqs.weight"].array if "rope_freqs.weight" in tensors else None
        return cls(
            p,
            tensors["token_embd.weight"],
            [layer(number) for number in range(p.layers)],
            np.array(tensors["output_norm.weight"].array, np.float32),
            weights_of([(tensors.get("output.weight", tensors["token_embd.weight"]), None)])[0],
            topi.rope_tables(p.context, p.depth // 2, p.base, factors),
            np.zeros(batch, np.int32),
            piece,
        )

    def prefill(self, tokens: Sequence[int], sequence: int = 0) -> Array:
        """Read a prompt into one sequence; the logits float32[vocabulary] behind its last token."""
        if not 0 <= sequence < len(self.lengths):
            raise DefinitionError(f"there are {len(self.lengths)} sequences, from 0 on, and none is {sequence}")
        given, one = self._checked(tokens), slice(sequence, sequence + 1)
        if not len(given):
            raise DefinitionError("a prompt has at least one token")
        self._require_room(one, len(given))
        made = np.empty(0)
        for begin in range(0, len(given), self.piece):
            some = given[begin : begin + self.piece]
            padded = np.pad(some, (0, self.piece - len(some)))[None]
            made = self._run(padded, one, len(some))[0]
        return made

    def decode(self, tokens: Sequence[int]) -> Array:
        """Read the next token of each sequence; the logits float32[batch, vocabulary] behind them."""
        given = self._checked(tokens)
        if len(given) != len(self.lengths):
            raise DefinitionError(f"there are {len(self.lengths)} sequences, got {len(given)} tokens")
        self._require_room(slice(None), 1)
        return self._run(given[:, None], slice(None), 1)

    def generate(self, prompts: Sequence[Sequence[int]], count: int) -> list[list[int]]:
        """The likeliest `count` tokens behind each prompt, of as many as there are sequences; from the beginning."""
        if len(prompts) != len(self.lengths) or count < 1:
            wanted = f"a prompt for each of {len(self.lengths)} sequences, and one token behind it or more"
            raise DefinitionError(f"generate wants {wanted}, got {len(prompts)} prompts, and {count} tokens")
        self.lengths[:] = 0
        nexts = [int(self.prefill(prompt, b).argmax()) for b, prompt in enumerate(prompts)]
        made = [[token] for token in nexts]
        for _ in range(count - 1):
            nexts = [int(token) for token in self.decode(nexts).argmax(-1)]
            for sequence, token in zip(made, nexts, strict=True):
                sequence.append(token)
        return made

    def _checked(self, tokens: Sequence[int]) -> Array:
        """Tokens as an array; DefinitionError for those that there are not."""
        most = self.parameters.vocabulary - 1
        for token in tokens:
            if not isinstance(token, int | np.integer) or isinstance(token, bool) or not 0 <= token <= most:
                raise DefinitionError(f"tokens are whole numbers from 0 to {most}, got {shown(token)}")
        return np.asarray(tokens, np.int32)

    def _require_room(self, which: slice, count: int) -> None:
        needed = int(self.lengths[which].max()) + count
        if needed > self.parameters.context:
            raise DefinitionError(f"{needed} tokens are more than the cache holds: {self.parameters.context}")

    def _run(self, tokens: Array, which: slice, count: int) -> Array:
        """Put tokens [batch, n] behind some sequences, `count` of each row; the logits behind the last of these."""
        p, (batch, n) = self.parameters, tokens.shape
        begin = self.lengths[which]
        if (which.start, n) not in self.steps:
            self.steps[which.start, n] = Step(p, self.layers, self.tables, which, batch, n)
        rows, table = np.empty((batch * n, p.width), np.float32), self.embeddings
        embed = kernels.embed(p, batch * n, table.format, table.array.shape)
        embed(tokens.reshape(-1), table.array, rows)
        rows = self.steps[which.start, n].run(rows, begin, count)
        self.lengths[which] += count
        last = np.ascontiguousarray(rows.reshape(batch, n, p.width)[:, count - 1])
        made = np.empty((batch, self.output.shape.n), np.float32)
        kernels.logits(p, batch, self.output.shape)(last, self.norm, *self.output.arrays, made)
        return made
