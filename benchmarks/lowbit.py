"""`python -m benchmarks lowbit`: products of weights of a few bits, and attention to a cache, in turn with a read of
as many bytes, and peers.

Weights are random, several matrices of one size, so that no cache holds them; a turn multiplies all of them with some
vectors, or reads all of their bytes. Both lie in huge pages. Kernels are those of `topi.schedule`, quantizing vectors
among them.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

import tensorlang
from benchmarks import lowbit_attention, lowbit_layer
from benchmarks.command_line import threads_or_all, write_result
from benchmarks.lowbit_attention import filled
from benchmarks.machine import describe
from benchmarks.peers import nbits
from benchmarks.peers.process import pinned
from tensorlang import dtypes, te, topi
from tensorlang.target import parse
from tensorlang.target.spec import Target

Array = npt.NDArray[Any]
Turn = Callable[[], object]
_Made = tuple[Turn, int, float] | str

N, K = 11008, 4096
ROUNDS = 15
_STREAMS, _LANES = 4, 16
_GROUPED = {f"int4-{group}": group for group in (128,)}
"""Weights that come as codes of four bits in groups of so many."""
_ATTENTION = (*lowbit_attention.NAMES, *lowbit_attention.PEERS)
_FLOATS = ("float32", "bfloat16")
"""Weights in no blocks; vectors are of their dtype, sums float32."""
_STEPS = 512
"""Vectors of a stream that are read one after the other."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Median seconds of a turn of one contestant, by the bytes that it reads and the operations that it does.

    `vectors` of a product; of attention the keys.
    """

    name: str
    vectors: int
    seconds: float
    bytes: int
    operations: float
    read: float
    """Bytes a second of the read that took turns with it."""

    @property
    def share(self) -> float:
        """Of the read."""
        return self.bytes / self.seconds / self.read

    def __str__(self) -> str:
        rates = f"{self.bytes / self.seconds / 1e9:8.1f} GB/s {self.share:6.2f} of the read"
        return f"{self.name:<30}{self.vectors:>6}{rates}{self.operations / self.seconds / 1e9:9.1f} GOP/s"


@click.command("lowbit")
@click.option("--threads", type=click.IntRange(1), help="Threads, and cores that all are pinned to (default: all).")
@click.option("--only", default="", metavar="NAMES", help="Formats, peers, caches: q4_0,onnxruntime,attention-int8.")
@click.option("--vectors", default="1,4,16", show_default=True, help="How many vectors are multiplied at once.")
@click.option("--keys", default="2048,16384", show_default=True, help="Keys that a token attends to.")
@click.option("--matrices", default=4, show_default=True, type=click.IntRange(1), help="Of 11008 by 4096 weights.")
@click.option("--shape", default=f"{N},{K}", show_default=True, help="Rows and columns of a matrix.")
@click.option("--rounds", default=ROUNDS, show_default=True, type=click.IntRange(1), help="Turns of every contestant.")
@click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path), help="Write the result to a file.")
def command(
    threads: int | None, only: str, vectors: str, keys: str, matrices: int, shape: str, rounds: int, out: Path | None
) -> None:
    """Time products of weights of a few bits beside a read of their bytes, and beside installed peers, in turn."""
    wanted, known = (
        [n for n in only.split(",") if n],
        [*topi.BLOCK_FORMATS, *_GROUPED, *_FLOATS, *nbits.PEERS, *_ATTENTION, lowbit_layer.NAME],
    )
    if unknown := [name for name in wanted if name not in known]:
        raise click.UsageError(f"no format or peer is called {unknown[0]!r}; there are {', '.join(known)}")
    count, (n, k) = threads_or_all(threads), map(int, shape.split(","))
    found, missing = list[Measured](), dict[str, str]()
    with pinned(count):
        target = replace(parse("llvm"), cores=count)
        for name in wanted or known:
            for m in _counts(name, keys, vectors):
                made = _made(name, m, n, k, matrices, target)
                if isinstance(made, str):
                    missing[name] = made
                    click.echo(f"{name}: {made}")
                    break
                found.append(_measured(name, m, made, rounds, target))
                click.echo(str(found[-1]))
    result = {**describe(), "threads": count, "rounds": rounds, "shape": [n, k], "matrices": matrices}
    write_result(out, {**result, "missing": missing, "products": [asdict(one) | {"share": one.share} for one in found]})
    sys.exit(0 if found else 1)


def _counts(name: str, keys: str, vectors: str) -> list[int]:
    """Of vectors of a product, or of keys of what attends to them."""
    if name == lowbit_layer.NAME:
        return [lowbit_layer.KEYS]
    return [int(count) for count in (keys if name in _ATTENTION else vectors).split(",")]


def _made(name: str, m: int, n: int, k: int, matrices: int, target: Target) -> _Made:
    """A turn of a contestant, the bytes that it reads, and its operations; why a peer is not there."""
    if name == lowbit_layer.NAME:
        return lowbit_layer.layers()
    return _attention(name, m, target) if name in _ATTENTION else _turn_of(name, m, n, k, matrices, target)


def _attention(name: str, keys: int, target: Target) -> _Made:
    if name in lowbit_attention.PEERS:
        return lowbit_attention.peer(lowbit_attention.PEERS[name], keys, target.cores)
    return lowbit_attention.attention(lowbit_attention.NAMES[name], keys, target)


def _turn_of(name: str, m: int, n: int, k: int, matrices: int, target: Target) -> _Made:
    operations = 2.0 * m * n * k * matrices
    if name in nbits.PEERS:
        peer = nbits.PEERS[name](m, n, k, matrices, target.cores)
        return peer if isinstance(peer, str) else (*peer, operations)
    data = te.placeholder((m, k), name if name in _FLOATS else "float32", name="data")
    if name in _FLOATS:
        tensors = [te.placeholder((n, k), name, name="weights")]
        made = topi.dense(data, tensors[0], out_dtype="float32")
    else:
        form = topi.group_format(4, _GROUPED[name]) if name in _GROUPED else topi.BLOCK_FORMATS[name]
        weights = topi.nbits_weights(n, k, form)
        tensors, made = weights.tensors, topi.matmul_nbits(data, weights)
    kernel = tensorlang.build(topi.schedule(made, target), [data, *tensors, made], target)
    sets = [filled(tensors, partial(_numbers, seed=seed)) for seed in range(matrices)]
    x = np.random.default_rng(0).standard_normal((m, k)).astype(dtypes.info(data.dtype).numpy)
    y = np.empty((m, n), np.float32)

    def turn() -> None:
        for arrays in sets:
            kernel(x, *arrays, y)

    return turn, sum(array.nbytes for arrays in sets for array in arrays), operations


def _numbers(tensor: te.Tensor, seed: int) -> Array:
    """Any codes; scales that are neither large nor subnormal."""
    rng, d, shape = np.random.default_rng(seed), dtypes.info(tensor.dtype), [int(str(e)) for e in tensor.shape]
    if d.is_float:
        return np.asarray(0.5 + rng.random(shape, np.float32)).astype(d.numpy)
    match shape:
        case _panel, _block, _lane:  # numbers of blocks
            low, high = 100, 120
        case _:
            low, high = 0, 256
    return rng.integers(low, high, shape).astype(d.numpy)


def streaming_read(size: int, target: Target) -> tuple[Turn, int]:
    """A turn that reads about so many bytes, several streams at once, as fast as sums can be made."""
    rows = -(-size // (_STEPS * _LANES * 4) // _STREAMS) * _STREAMS
    array = te.placeholder((rows, _STEPS, _LANES), "uint32", name="array")
    k = te.reduce_axis((0, _STEPS), "k")
    sums = te.compute((rows, _LANES), lambda i, lane: te.sum(array[i, k, lane], axis=k), name="sums")
    s = te.create_schedule(sums.op)
    local = s[s.cache_write(sums, "local")]
    outer, stream = s[sums].split("i", _STREAMS)
    s[sums].unroll(stream)
    s[sums].vectorize("lane")
    if target.cores > 1:
        s[sums].parallel(outer)
    local.compute_at(s[sums], outer)
    far, near = local.split("k", _STREAMS)
    local.reorder(far, near, "i", "lane")
    for axis in (near, "i"):
        local.unroll(axis)
    local.vectorize("lane")
    kernel = tensorlang.build(s, [array, sums], target)
    (given,), made = filled([array], lambda t: 1), np.empty((rows, _LANES), np.uint32)
    return lambda: kernel(given, made), given.nbytes


def _measured(name: str, m: int, made: tuple[Turn, int, float], rounds: int, target: Target) -> Measured:
    (turn, size, operations), (read, read_bytes) = made, streaming_read(made[1], target)
    times: tuple[list[float], list[float]] = ([], [])
    for each in (turn, read):
        each()
    for _ in range(rounds):
        for samples, each in zip(times, (turn, read), strict=True):
            begun = time.perf_counter()
            each()
            samples.append(time.perf_counter() - begun)
    own, other = map(statistics.median, times)
    return Measured(name, m, own, size, operations, read_bytes / other)
