"""A decoder as C: kernels as objects, weights as one file, and the loop over its layers, written for them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from examples.llm import kernels
from examples.llm.decoder import Array, Decoder
from examples.llm.steps import Layer
from tensorlang.errors import MissingDependency

HERE = Path(__file__).parent
_ALIGNMENT = 64
_SIZES = ("layers", "width", "hidden", "groups", "depth", "vocabulary", "context")


@dataclass(slots=True)
class Exporter:
    """What was written to a folder so far: the names of kernels, the places of arrays among so many bytes of weights.

    Both are known by their identity, so they are held.
    """

    folder: Path
    names: dict[int, str] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)
    held: list[Any] = field(default_factory=list)
    bytes: int = 0

    def kernel(self, kernel: Any, kind: str) -> str:
        """The C function of a kernel, whose object and header are written when it is first met."""
        if id(kernel) not in self.names:
            name = f"{kind}_{sum(known.startswith(kind) for known in self.names.values())}"
            kernel.export(self.folder / name, formats=("o", "h"), threads="openmp")
            self.held.append(kernel)
            self.names[id(kernel)] = name
        return self.names[id(kernel)]

    def weights(self, arrays: Sequence[Array]) -> list[str]:
        """Where arrays are among the weights, behind which they are written when they are first met."""
        return [f"w + {self._offset(array)}" for array in arrays]

    def _offset(self, array: Array) -> int:
        if id(array) not in self.offsets:
            self.held.append(array)
            with (self.folder / "decoder.weights").open("ab") as file:
                file.write(bytes(-self.bytes % _ALIGNMENT))
                self.offsets[id(array)] = file.tell()
                file.write(np.ascontiguousarray(array).tobytes())
                self.bytes = file.tell()
        return self.offsets[id(array)]


def export(decoder: Decoder, folder: Path) -> Path:
    """Write `decoder.so`, `decoder.h`, `decoder.weights`, their sources and the program `generate`, of one sequence.

    What C compilers `cc` are there links them; MissingDependency without one, when all else is written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "decoder.weights").write_bytes(b"")
    exporter, p = Exporter(folder), decoder.parameters
    steps = "\n".join("\n".join(_step(exporter, decoder, n)) for n in dict.fromkeys((1, decoder.piece)))
    words = {
        **{name: getattr(p, name) for name in _SIZES},
        "piece": decoder.piece,
        "bytes": exporter.bytes,
        "steps": steps,
        "includes": "\n".join(f'#include "{name}.h"' for name in exporter.names.values()),
    }
    for name in ("decoder.h", "decoder.c", "generate.c"):
        text = (HERE / name).read_text(encoding="utf-8")
        (folder / name).write_text(Template(text).substitute(words), encoding="utf-8")
    _link(folder, list(exporter.names.values()))
    return folder


def _step(exporter: Exporter, decoder: Decoder, n: int) -> Iterator[str]:
    """The C function that reads n tokens behind the sequence, and makes the logits behind the last of some."""
    p, table = decoder.parameters, decoder.embeddings
    embed = exporter.kernel(kernels.embed(p, n, table.format, table.array.shape), "embed")
    logits = exporter.kernel(kernels.logits(p, 1, decoder.output.shape), "logits")
    yield f"static int step_{n}(decoder *d, const int32_t *tokens, int count, float *logits) {{"
    yield f"  const uint8_t *const w = d->weights;\n  const int most = begin(d, tokens, {n}, count);"
    yield _call(embed, "d->tokens", *exporter.weights([table.array]), "d->rows")
    for number, layer in enumerate(decoder.layers):
        yield from _layer(exporter, decoder, layer, number, n)
    last = f"d->rows + (size_t)(count - 1) * {p.width}"
    yield _call(logits, last, *exporter.weights([decoder.norm, *decoder.output.arrays]), "logits")
    yield "  return 0;\n}\n"


def _layer(exporter: Exporter, decoder: Decoder, layer: Layer, number: int, n: int) -> Iterator[str]:
    """The calls of a layer, from `rows` to `rows`."""
    p, (query, key, value, output, gate, up, down) = decoder.parameters, layer.weights
    before = exporter.kernel(kernels.before(p, 1, n, query.shape, key.shape, value.shape), "before")
    asked = exporter.weights([layer.norms[0], *query.arrays, *key.arrays, *value.arrays])
    tables = exporter.weights(decoder.tables)
    yield _call(before, "d->rows", *asked, "d->positions", *tables, "d->queries", "d->new_keys", "d->new_values")
    yield f"  keep(d, {number}, {n}, count);"
    caches = [f"d->{name} + {number} * CACHE" for name in ("keys", "values")]
    attend = exporter.kernel(kernels.attend(p, 1, n), "attend")
    yield _call(attend, "d->queries", *caches, "d->lengths", "d->heads", "most")
    added = exporter.kernel(kernels.added(n, output.shape), "added")
    yield _call(added, "d->heads", "d->rows", *exporter.weights(output.arrays), "d->behind")
    gated = exporter.kernel(kernels.gated(p, n, gate.shape, up.shape), "gated")
    gates = exporter.weights([layer.norms[1], *gate.arrays, *up.arrays])
    yield _call(gated, "d->behind", *gates, "d->hidden")
    added = exporter.kernel(kernels.added(n, down.shape), "added")
    yield _call(added, "d->hidden", "d->behind", *exporter.weights(down.arrays), "d->rows")


def _call(name: str, *arguments: str) -> str:
    given = ", ".join(f"(const void *)({a})" if a.startswith("w + ") else a for a in arguments)
    return f"  CALL({name}({given}));"


def _link(folder: Path, names: Sequence[str]) -> None:
    """Make the library, and the program beside it."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise MissingDependency(f"a C compiler `cc` links what is in {folder}, and there is none; install gcc or clang")
    objects = [f"{name}.o" for name in names]
    usual = [compiler, "-std=c11", "-D_DEFAULT_SOURCE", "-O2", "-fPIC", "decoder.c", *objects]
    for made in (["-shared", "-o", "decoder.so"], ["generate.c", "-o", "generate"]):
        subprocess.run([*usual, *made, "-lgomp", "-lm"], cwd=folder, check=True)
