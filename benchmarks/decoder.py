"""`python -m benchmarks decoder`: a Llama-like model of random weights, tokens a second, in turn with llama.cpp.

The model is written as a GGUF file, which both read. llama.cpp comes with the package llama-cpp-python; without it the
decoder of examples/llm is timed alone. With GLIBC_TUNABLES=glibc.malloc.hugetlb=1 both have huge pages.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.command_line import threads_or_all, write_result
from benchmarks.machine import describe
from benchmarks.peers.llama_cpp import Reference
from benchmarks.peers.process import pinned
from examples.llm import Decoder

_WIDTH, _HIDDEN, _HEADS, _GROUPS, _VOCABULARY, _CONTEXT = 2048, 8192, 32, 8, 32000, 2048
_TOKENS = 16
"""Tokens of a turn, one after the other."""
_REST = 0.05
"""Seconds between turns: threads of others spin after a call."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Median seconds of a token behind a prompt, and of the prompt."""

    name: str
    token: float
    prompt: float


@click.command("decoder")
@click.option("--threads", type=click.IntRange(1), help="Threads, and cores that all are pinned to (default: all).")
@click.option("--layers", default=4, show_default=True, type=click.IntRange(1))
@click.option("--format", "kind", default="Q4_0", show_default=True, help="Of all weights.")
@click.option("--prompt", default=512, show_default=True, type=click.IntRange(1, _CONTEXT // 2), help="Tokens of it.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="Turns of both.")
@click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path), help="Write the result to a file.")
def command(threads: int | None, layers: int, kind: str, prompt: int, rounds: int, out: Path | None) -> None:
    """Time a decoder of random weights beside llama.cpp, and compare their logits."""
    count = threads_or_all(threads)
    os.environ["OMP_NUM_THREADS"] = str(count)
    with tempfile.TemporaryDirectory() as folder, pinned(count):
        path = _written(Path(folder) / "model.gguf", layers, kind)
        own = Decoder.load(path, context=_CONTEXT)
        turns: dict[str, tuple[Callable[[], object], Callable[[list[int]], Any]]] = {
            "tensorlang": (lambda: own.lengths.fill(0), partial(_read, own))
        }
        try:
            other = Reference(str(path), _CONTEXT, count)
            turns["llama.cpp"] = (other.forget, other.read)
        except ImportError as error:
            click.echo(f"llama.cpp: {error}")
        tokens = [int(token) for token in np.random.default_rng(3).integers(0, _VOCABULARY, prompt)]
        found, apart = _timed(turns, tokens, rounds)
    for one in found:
        click.echo(f"{one.name:<12}{1 / one.token:8.1f} tokens/s{prompt / one.prompt:10.0f} of a prompt")
    if apart is not None:
        click.echo(f"logits differ by {apart:.3f} of their spread")
    sizes = {"threads": count, "layers": layers, "format": kind, "prompt": prompt, "apart": apart}
    write_result(out, {**describe(), **sizes, "decoders": [asdict(one) for one in found]})


def _read(decoder: Decoder, tokens: list[int]) -> Any:
    """The logits behind tokens that the decoder reads."""
    return decoder.prefill(tokens) if len(tokens) > 1 else decoder.decode(tokens)[0]


def _timed(turns: dict[str, Any], tokens: list[int], rounds: int) -> tuple[list[Measured], float | None]:
    """The times of all, by turns; how far the logits behind the prompt are apart, as a part of their spread."""
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in turns}
    logits: dict[str, Any] = {}
    for _ in range(rounds):
        for name, (forget, read) in turns.items():
            forget()
            marks = [time.perf_counter()]
            logits[name] = read(tokens)
            for token in range(_TOKENS + 1):
                marks.append(time.perf_counter())
                read([token])
            whole, _, *each = np.diff([*marks, time.perf_counter()])
            times[name][0].extend(map(float, each))
            times[name][1].append(float(whole))
            time.sleep(_REST)
    found = [Measured(name, *map(statistics.median, both)) for name, both in times.items()]
    if len(logits) < 2:
        return found, None
    one, other = logits.values()
    return found, float(np.sqrt(((one - other) ** 2).mean()) / other.std())


def _written(path: Path, layers: int, kind: str) -> Path:
    """A file of random weights, whose tokens are numbers."""
    import gguf

    rng, writer, depth = np.random.default_rng(1), gguf.GGUFWriter(path, "llama"), _WIDTH // _HEADS
    numbers = {
        "block_count": layers, "embedding_length": _WIDTH, "feed_forward_length": _HIDDEN, "vocab_size": _VOCABULARY,
        "attention.head_count": _HEADS, "attention.head_count_kv": _GROUPS, "context_length": _CONTEXT,
        "rope.dimension_count": depth,
    }  # fmt: skip
    for name, value in numbers.items():
        writer.add_uint32(f"llama.{name}", value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_string("tokenizer.ggml.model", "no_vocab")
    few, square = (_GROUPS * depth, _WIDTH), (_WIDTH, _WIDTH)
    own = {"attn_q": square, "attn_k": few, "attn_v": few, "attn_output": square}
    own |= {"ffn_gate": (_HIDDEN, _WIDTH), "ffn_up": (_HIDDEN, _WIDTH), "ffn_down": (_WIDTH, _HIDDEN)}
    shapes = {"token_embd": (_VOCABULARY, _WIDTH), "output": (_VOCABULARY, _WIDTH)}
    shapes |= {f"blk.{k}.{name}": shape for k in range(layers) for name, shape in own.items()}
    raw = gguf.GGMLQuantizationType[kind]
    for name, shape in shapes.items():
        size = 1.0 if name == "token_embd" else 1.5 * shape[1] ** -0.5
        weights = (size * rng.standard_normal(shape, np.float32)).astype(np.float32)
        writer.add_tensor(f"{name}.weight", gguf.quants.quantize(weights, raw), raw_dtype=raw)
    for name in ("output_norm", *(f"blk.{k}.{norm}" for k in range(layers) for norm in ("attn_norm", "ffn_norm"))):
        writer.add_tensor(f"{name}.weight", np.asarray(1 + 0.2 * rng.standard_normal(_WIDTH), np.float32))
    for write in (
        writer.write_header_to_file,
        writer.write_kv_data_to_file,
        writer.write_tensors_to_file,
        writer.close,
    ):
        write()
    return path
