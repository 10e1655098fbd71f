"""The decoder of examples/llm, on small files of random weights, against a model in NumPy."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from examples.llm import Decoder
from examples.llm.exported import export
from tensorlang import gguf as files
from tensorlang.errors import DefinitionError
from tensorlang.topi.block_formats import BLOCK_FORMATS, dequantized

gguf = pytest.importorskip("gguf")

Array = npt.NDArray[Any]
LAYERS, WIDTH, HIDDEN, HEADS, GROUPS, VOCABULARY, CONTEXT = 2, 128, 256, 4, 2, 96, 64
PROMPTS = [[5, 1, 77, 20, 9], [3, 90, 14, 15, 92, 65, 35, 89, 79, 32, 38]]


def written(path: Path, kinds: dict[str, str], more: dict[str, Any] | None = None) -> Path:
    """A file of random weights, in a format for each tensor; the output's may be left out."""
    rng, writer, depth = np.random.default_rng(1), gguf.GGUFWriter(path, "llama"), WIDTH // HEADS
    sizes = {
        "llama.block_count": LAYERS, "llama.embedding_length": WIDTH, "llama.feed_forward_length": HIDDEN,
        "llama.attention.head_count": HEADS, "llama.attention.head_count_kv": GROUPS, "llama.context_length": CONTEXT,
    }  # fmt: skip
    for name, value in (sizes | (more or {})).items():
        writer.add_uint32(name, value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    attention = {"attn_q": (WIDTH, WIDTH), "attn_k": (GROUPS * depth, WIDTH), "attn_v": (GROUPS * depth, WIDTH)}
    gate = {"ffn_gate": (HIDDEN, WIDTH), "ffn_up": (HIDDEN, WIDTH), "ffn_down": (WIDTH, HIDDEN)}
    shapes = {"token_embd": (VOCABULARY, WIDTH), "output": (VOCABULARY, WIDTH)}
    for k in range(LAYERS):
        own = attention | {"attn_output": (WIDTH, WIDTH)} | gate
        shapes |= {f"blk.{k}.{name}": shape for name, shape in own.items()}
    for name, shape in shapes.items():
        kind = kinds.get(name.split(".")[-1], kinds["all"])
        if kind:
            size = 1.0 if name == "token_embd" else 1.5 * shape[1] ** -0.5
            raw, numbers = gguf.GGMLQuantizationType[kind], (size * rng.standard_normal(shape)).astype(np.float32)
            writer.add_tensor(f"{name}.weight", gguf.quants.quantize(numbers, raw), raw_dtype=raw)
    for name in ("output_norm", *(f"blk.{k}.{norm}" for k in range(LAYERS) for norm in ("attn_norm", "ffn_norm"))):
        writer.add_tensor(f"{name}.weight", (1 + 0.2 * rng.standard_normal(WIDTH)).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


class Model:
    """The same in float64, one sequence at a time, with data of products in bytes as the kernels have them."""

    def __init__(self, path: Path) -> None:
        self.tensors = files.load(path).tensors

    def weight(self, name: str) -> Array:
        tensor = self.tensors[f"{name}.weight"]
        if tensor.format in BLOCK_FORMATS:
            return dequantized(tensor.array, BLOCK_FORMATS[tensor.format]).reshape(tensor.shape).astype(np.float64)
        return np.asarray(tensor.array.astype(np.float64))

    def product(self, rows: Array, name: str) -> Array:
        tensor = self.tensors[f"{name}.weight"]
        if tensor.format in BLOCK_FORMATS:
            blocks = rows.reshape(len(rows), -1, BLOCK_FORMATS[tensor.format].block)
            most = abs(blocks).max(-1, keepdims=True)
            rows = (np.rint(blocks * 127 / most) * most / 127).reshape(rows.shape)
        return np.asarray(rows @ self.weight(name).T)

    def normed(self, rows: Array, name: str) -> Array:
        return np.asarray(rows / np.sqrt((rows**2).mean(-1, keepdims=True) + 1e-5) * self.weight(name))

    def logits(self, tokens: list[int]) -> Array:
        """Behind each token, [tokens, vocabulary]."""
        rows, depth, n = self.weight("token_embd")[tokens], WIDTH // HEADS, len(tokens)
        turns = np.exp(1j * np.arange(n)[:, None] * 10000.0 ** (-np.arange(depth // 2) / (depth // 2)))

        def heads(data: Array, turned: bool) -> Array:
            split = data.reshape(n, -1, depth).transpose(1, 0, 2)
            if turned:  # pairs are neighbours in files
                pairs = (split[..., 0::2] + 1j * split[..., 1::2]) * turns
                split = np.stack([pairs.real, pairs.imag], -1).reshape(split.shape)
            return split

        for k in range(LAYERS):
            name, normed = f"blk.{k}", self.normed(rows, f"blk.{k}.attn_norm")
            query = heads(self.product(normed, f"{name}.attn_q"), True)
            key, value = (
                np.repeat(heads(self.product(normed, f"{name}.{w}"), w == "attn_k"), HEADS // GROUPS, 0)
                .astype(np.float16)
                .astype(np.float64)
                for w in ("attn_k", "attn_v")
            )
            scores = np.where(np.tri(n, dtype=bool), query @ key.transpose(0, 2, 1) / depth**0.5, -np.inf)
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            found = (shares / shares.sum(-1, keepdims=True) @ value).transpose(1, 0, 2).reshape(n, WIDTH)
            rows = rows + self.product(found, f"{name}.attn_output")
            normed = self.normed(rows, f"{name}.ffn_norm")
            gate = self.product(normed, f"{name}.ffn_gate")
            hidden = gate / (1 + np.exp(-gate)) * self.product(normed, f"{name}.ffn_up")
            rows = rows + self.product(hidden, f"{name}.ffn_down")
        return self.product(
            self.normed(rows, "output_norm"), "output" if "output.weight" in self.tensors else "token_embd"
        )


KINDS = [
    {"all": "Q4_0"},
    {"all": "Q8_0", "output": "", "attn_v": "F16", "ffn_down": "Q5_1"},
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kinds", KINDS)
def test_prompts_and_tokens_behind_them(tmp_path: Path, kinds: dict[str, str]) -> None:
    """Logits of a whole prompt, in pieces and not; the likeliest tokens of two sequences at a time."""
    path = written(tmp_path / "model.gguf", kinds)
    model, decoder = Model(path), Decoder.load(path, batch=2, piece=2)
    for sequence, prompt in enumerate(PROMPTS):
        made, wanted = decoder.prefill(prompt, sequence), model.logits(prompt)[-1]
        assert abs(made - wanted).max() < 0.05 * wanted.std()
    assert list(decoder.lengths) == [5, 11]
    written_tokens = decoder.generate(PROMPTS, 12)
    for prompt, behind in zip(PROMPTS, written_tokens, strict=True):
        wanted = model.logits([*prompt, *behind[:-1]])[len(prompt) - 1 :]
        margins = wanted.max(-1) - wanted[np.arange(12), behind]
        assert (margins < 0.05 * wanted.std()).all()


def test_other_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="with 16 turned numbers of a head do not fit"):
        Decoder.load(written(tmp_path / "a.gguf", KINDS[0], {"llama.rope.dimension_count": 16}))
    writer = gguf.GGUFWriter(tmp_path / "b.gguf", "gpt2")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(DefinitionError, match="is a gpt2; llama models are read"):
        Decoder.load(tmp_path / "b.gguf")


def test_a_full_cache_is_refused(tmp_path: Path) -> None:
    decoder = Decoder.load(written(tmp_path / "model.gguf", KINDS[0]), context=8)
    with pytest.raises(DefinitionError, match="9 tokens are more than the cache holds: 8"):
        decoder.prefill(range(9))


@pytest.mark.parametrize("token", [-1, VOCABULARY, 2**40, 1.5])
def test_tokens_that_there_are_not_are_refused(tmp_path: Path, token: float) -> None:
    decoder = Decoder.load(written(tmp_path / "model.gguf", KINDS[0]))
    with pytest.raises(DefinitionError, match=f"tokens are whole numbers from 0 to 95, got {token}"):
        decoder.decode([token])  # type: ignore[list-item]


def test_what_is_refused_leaves_the_caches_alone(tmp_path: Path) -> None:
    decoder = Decoder.load(written(tmp_path / "model.gguf", KINDS[0]), batch=2, context=8, piece=3)
    decoder.prefill([1, 2], 1)
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: decoder.decode([1]), "2 sequences, got 1 tokens"),
        (lambda: decoder.prefill([1], 2), "2 sequences, from 0 on, and none is 2"),
        (lambda: decoder.prefill([1], -1), "none is -1"),
        (lambda: decoder.prefill([1] * 7, 1), "9 tokens are more than the cache holds: 8"),
        (lambda: decoder.prefill([1, 2, 3, 99], 0), "from 0 to 95, got 99"),
        (lambda: decoder.prefill("ab"), "from 0 to 95, got 'a'"),  # type: ignore[arg-type]
        (lambda: decoder.prefill([]), "at least one token"),
        (lambda: decoder.generate([[1]], 2), "got 1 prompts, and 2 tokens"),
        (lambda: decoder.generate([[1], [2]], 0), "got 2 prompts, and 0 tokens"),
    ]
    for call, message in calls:
        with pytest.raises(DefinitionError, match=message):
            call()
        assert list(decoder.lengths) == [0, 2]
    decoder.prefill(np.array([3, 4]))  # type: ignore[arg-type]


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_decoder_in_c_writes_the_same_tokens(tmp_path: Path) -> None:
    decoder = Decoder.load(written(tmp_path / "model.gguf", {"all": "Q4_0", "token_embd": "F16"}), piece=40)
    folder = export(decoder, tmp_path / "out")

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        command = [str(word) for word in (folder / "generate", folder / "decoder.weights", *words)]
        return subprocess.run(command, check=False, capture_output=True, encoding="utf-8", timeout=60)

    long = [k * k * k % VOCABULARY for k in range(CONTEXT - 1)]  # behind its first piece is no room for another
    for prompt, count in ((PROMPTS[0], 20), (PROMPTS[1], 20), (long, 1)):  # whole pieces, and what is left
        assert run(count, *prompt).stdout.split() == [str(token) for token in decoder.generate([prompt], count)[0]]
    full = run(CONTEXT, 1, 2, 3)
    assert (full.returncode, len(full.stdout.split())) == (1, CONTEXT - 2)
    assert full.stderr == "the decoder stopped with code -1000\n"
    assert run(1, VOCABULARY).returncode == 1  # a token that there is not
    with (folder / "decoder.weights").open("ab") as file:
        file.write(b"more")
    assert "not the weights of this decoder" in run(1, 5).stderr
