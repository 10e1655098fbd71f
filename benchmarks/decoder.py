"""`python -m benchmarks decoder`: a Llama-like model of random weights, tokens a second, in turn with llama.cpp.

The model is written as a GGUF file, which both read. llama.cpp comes with the package llama-cpp-python; without it the
decoder of examples/llm is timed alone: from Python, and as the library that it exports, where there is a C compiler.
Behind each turn as many bytes are read as a token needs. With GLIBC_TUNABLES=glibc.malloc.hugetlb=1 all have huge
pages.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.command_line import threads_or_all, write_result
from benchmarks.lowbit import streaming_read
from benchmarks.machine import describe
from benchmarks.peers.llama_cpp import Reference
from benchmarks.peers.process import pinned
from examples.llm import Decoder
from examples.llm.exported import export
from tensorlang import gguf
from tensorlang.target import parse

_WIDTH, _HIDDEN, _HEADS, _GROUPS, _VOCABULARY, _CONTEXT = 2048, 8192, 32, 8, 32000, 2048
_TOKENS = 16
"""Tokens of a turn, one after the other."""
_OTHER, _HALF = "llama.cpp", 2
_REST = 0.05
"""Seconds between turns: threads of others spin after a call."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Median seconds of a token behind a prompt, and of the prompt."""

    name: str
    token: float
    prompt: float
    share: float
    """Of the speed of a read: of the bytes of weights, keys and values that a token needs."""


class Exported:
    """The library that a decoder is exported as; one sequence."""

    def __init__(self, decoder: Decoder, folder: Path) -> None:
        export(decoder, folder)
        library = ctypes.CDLL(str(folder / "decoder.so"))
        library.decoder_open.restype = ctypes.c_void_p
        library.decoder_forget.argtypes = [ctypes.c_void_p]
        library.decoder_read.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
        self._library, self._state = library, library.decoder_open(str(folder / "decoder.weights").encode())
        self._width = decoder.parameters.vocabulary

    def forget(self) -> None:
        """Empty the cache."""
        self._library.decoder_forget(self._state)

    def read(self, tokens: list[int]) -> Any:
        """Put tokens into the cache; the logits behind the last."""
        some, logits = np.array(tokens, np.int32), np.empty(self._width, np.float32)
        code = self._library.decoder_read(self._state, some.ctypes.data, len(some), logits.ctypes.data)
        if code:
            raise RuntimeError(f"decoder_read returned {code}")
        return logits


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
        if shutil.which("cc"):
            library = Exported(own, Path(folder) / "exported")
            turns["exported"] = (library.forget, library.read)
        try:
            other = Reference(str(path), _CONTEXT, count)
            turns[_OTHER] = (other.forget, other.read)
        except ImportError as error:
            click.echo(f"{_OTHER}: {error}")
        tokens = [int(token) for token in np.random.default_rng(3).integers(0, _VOCABULARY, prompt)]
        size = _weights(path) + layers * (prompt + _TOKENS // 2) * 2 * _GROUPS * (_WIDTH // _HEADS) * _HALF
        found, apart = _timed(turns, tokens, rounds, size, count)
    for one in found:
        rates = f"{1 / one.token:8.1f} tokens/s {one.share:6.2f} of the read{prompt / one.prompt:10.0f} of a prompt"
        click.echo(f"{one.name:<12}{rates}")
    if apart is not None:
        click.echo(f"logits differ by {apart:.3f} of their spread")
    sizes = {"threads": count, "layers": layers, "format": kind, "prompt": prompt, "apart": apart}
    write_result(out, {**describe(), **sizes, "decoders": [asdict(one) for one in found]})


def _weights(path: Path) -> int:
    """Bytes of a file's weights but the embeddings, of which a token needs one row."""
    tensors = gguf.load(path).tensors
    return sum(int(tensor.array.nbytes) for name, tensor in tensors.items() if not name.startswith("token_embd"))


def _read(decoder: Decoder, tokens: list[int]) -> Any:
    """The logits behind tokens that the decoder reads."""
    return decoder.prefill(tokens) if len(tokens) > 1 else decoder.decode(tokens)[0]


def _timed(
    turns: dict[str, Any], tokens: list[int], rounds: int, size: int, threads: int
) -> tuple[list[Measured], float | None]:
    """The times of all, by turns, beside a read of `size` bytes; how far the logits behind the prompt are apart.

    The latter as a part of their spread.
    """
    read_all, read_bytes = streaming_read(size, replace(parse("llvm"), cores=threads))
    reads = list[float]()
    read_all()
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in turns}
    logits: dict[str, Any] = {}
    for _ in range(rounds):
        for name, (forget, read) in turns.items():
            forget()
            marks = [time.perf_counter()]
            logits[name] = read(tokens)
            for number in range(_TOKENS + 1):
                marks.append(time.perf_counter())
                read([number])
            whole, _, *each = np.diff([*marks, time.perf_counter()])
            times[name][0].extend(map(float, each))
            times[name][1].append(float(whole))
            time.sleep(_REST)
            begun = time.perf_counter()
            read_all()
            reads.append(time.perf_counter() - begun)
    speed, found = read_bytes / float(statistics.median(reads)), list[Measured]()
    for name, both in times.items():
        each, prompts = both
        token = statistics.median(each)
        found.append(Measured(name, token, statistics.median(prompts), size / token / speed))
    if _OTHER not in logits:
        return found, None
    one, other = next(iter(logits.values())), logits[_OTHER]
    return found, float(np.sqrt(((one - other) ** 2).mean()) / other.std())


def _written(path: Path, layers: int, kind: str) -> Path:
    """A file of random weights, whose tokens are numbers."""
    import gguf as reference

    rng, writer, depth = np.random.default_rng(1), reference.GGUFWriter(path, "llama"), _WIDTH // _HEADS
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
    raw = reference.GGMLQuantizationType[kind]
    for name, shape in shapes.items():
        size = 1.0 if name == "token_embd" else 1.5 * shape[1] ** -0.5
        weights = (size * rng.standard_normal(shape, np.float32)).astype(np.float32)
        writer.add_tensor(f"{name}.weight", reference.quants.quantize(weights, raw), raw_dtype=raw)
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
