"""GGUF files: what is in them, and that damaged and hostile ones are refused, whatever is wrong with them."""

from __future__ import annotations

import os
import struct
import tracemalloc
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import gguf, te, topi
from tensorlang.errors import DefinitionError
from tensorlang.topi.block_formats import BLOCK_FORMATS, dequantized
from tests.thoroughness import draws

ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)
BLOCKS = np.random.default_rng(0).integers(0, 256, (5, 2, 18), dtype=np.uint8)
BLOCKS[..., 1] = 0x2C


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def pair(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def tensor(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, offset)


PAIRS = (
    pair("general.architecture", 8, text("llama")),
    pair("general.alignment", 4, struct.pack("<I", 64)),
    pair("heads", 5, struct.pack("<i", -3)),
    pair("tied", 7, b"\x01"),
    pair("tokens", 9, struct.pack("<IQ", 8, 2) + text("a") + text("é")),
    pair("scores", 9, struct.pack("<IQ2f", 6, 2, 0.5, 1.5)),
)
TENSORS = (tensor("rows", (2, 3), 0, 0), tensor("blocks", (5, 64), 2, 64), tensor("other", (1, 256), 16, 0))


def made(pairs: tuple[bytes, ...] = PAIRS, tensors: tuple[bytes, ...] = TENSORS, version: int = 3) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs)) + b"".join(pairs) + b"".join(tensors)
    return head + bytes(-len(head) % 64) + ROWS.tobytes().ljust(64, b"\0") + BLOCKS.tobytes()


def written(folder: Path, data: bytes) -> Path:
    path = folder / "model.gguf"
    path.write_bytes(data)
    return path


def test_what_a_file_holds(tmp_path: Path) -> None:
    file = tensorlang.gguf.load(written(tmp_path, made()))
    scores = file.metadata["scores"]
    assert isinstance(scores, np.ndarray) and scores.tolist() == [0.5, 1.5]
    rest = {name: value for name, value in file.metadata.items() if name != "scores"}
    assert rest == {
        "general.architecture": "llama", "general.alignment": 64, "heads": -3, "tied": True, "tokens": ["a", "é"]
    }  # fmt: skip
    assert file.unknown == {"other": 16} and file.tensors["blocks"].shape == (5, 64)
    np.testing.assert_array_equal(file.tensors["rows"].array, ROWS)
    np.testing.assert_array_equal(file.tensors["blocks"].array, BLOCKS)
    assert not file.tensors["rows"].array.flags.writeable and file.tensors["blocks"].format == "q4_0"


def test_blocks_of_a_file_are_dequantized_as_they_lie(tmp_path: Path) -> None:
    blocks = gguf.load(written(tmp_path, made())).tensors["blocks"]
    given = te.placeholder(blocks.array.shape, "uint8", "blocks")
    out = topi.dequantize(given, blocks.format)
    weights = np.empty(blocks.shape, np.float32)
    tensorlang.build(topi.schedule(out, tuned=False), [given, out])(blocks.array, weights)
    np.testing.assert_array_equal(weights, dequantized(BLOCKS, BLOCK_FORMATS["q4_0"]))


def test_files_of_the_package_gguf(tmp_path: Path) -> None:
    package: Any = pytest.importorskip("gguf")
    writer = package.GGUFWriter(tmp_path / "other.gguf", "llama")
    writer.add_block_count(3)
    writer.add_tensor("rows", ROWS)
    kind = package.GGMLQuantizationType.Q8_0
    weights = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)
    writer.add_tensor("blocks", package.quants.quantize(weights, kind), raw_dtype=kind)
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    file = gguf.load(tmp_path / "other.gguf")
    assert file.metadata["llama.block_count"] == 3 and file.tensors["blocks"].shape == (4, 64)
    np.testing.assert_array_equal(file.tensors["rows"].array, ROWS)
    assert abs(dequantized(file.tensors["blocks"].array, BLOCK_FORMATS["q8_0"]) - weights).max() < 0.02


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"GG", "it has 2 bytes"),
        (b"GGML" + made()[4:], "does not begin with GGUF"),
        (made(version=1), "version 1; 2 and 3 are read"),
        (made(version=3 << 24), "other byte order"),
        (made()[:40], "do not fit into 40 bytes"),
        (made()[:-1], "'blocks' .* ends behind the file"),
        (made(PAIRS + PAIRS[:1]), "two values are called 'general.architecture'"),
        (made((pair("general.alignment", 4, struct.pack("<I", 48)),)), "alignment is 48, no power of two"),
        (made((pair("a", 13, b"x"),)), "unknown type 13"),
        (made((pair("a", 9, struct.pack("<IQ", 8, 1 << 61)),)), "ends behind the file"),
        (made((pair("a", 9, struct.pack("<IQ", 12, 1 << 62)),)), "ends behind the file"),
        (made((pair("a", 8, struct.pack("<Q", 2**64 - 1)),)), "ends behind the file"),
        (made((pair("a", 8, struct.pack("<Q", 1) + b"\xff"),)), "no UTF-8"),
        (made((struct.pack("<Q", 0) + bytes(9),)), "has 0 bytes"),
        (made(tensors=(tensor("t", (1 << 62, 1 << 62), 0, 0),)), "ends behind the file"),
        (made(tensors=(tensor("t", (0, 3), 0, 0),)), "has no elements"),
        (made(tensors=(tensor("t", (2, 3), 0, 2**64 - 64),)), "ends behind the file"),
        (made(tensors=(tensor("t", (2, 3), 0, 4),)), "no multiple of 64"),
        (made(tensors=(tensor("t", (2, 48), 2, 0),)), "are no blocks of 32"),
        (made(tensors=(tensor("t", (1,) * 5, 0, 0),)), "has 5 dimensions"),
    ],
)  # fmt: skip
def test_damaged_files_are_refused(data: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=message):
        gguf.load(written(tmp_path, data))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no FIFOs here")
def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DefinitionError, match="no regular file"):
        gguf.load(tmp_path / "pipe")


def test_whatever_is_changed_a_file_is_read_within_its_bounds_or_refused(tmp_path: Path) -> None:
    draw, whole, path, refused = Random(0), made(), tmp_path / "model.gguf", 0
    sizes = (0, 1, 2**7, 2**31, 2**32 - 1, 2**61, 2**63, 2**64 - 1)
    tracemalloc.start()
    count = draws(150, 20000)
    for _ in range(count):
        data = bytearray(whole[: draw.choice((len(whole), len(whole), draw.randrange(len(whole))))])
        for _ in range(draw.randint(0, 4)):
            place = draw.randrange(max(1, len(data)))
            changed = draw.choice((bytes([draw.randrange(256)]), struct.pack("<Q", draw.choice(sizes))))
            data[place : place + len(changed)] = changed
        path.write_bytes(data)
        try:
            file = gguf.load(path)
        except DefinitionError:
            refused += 1
            continue
        for one in file.tensors.values():
            assert one.array.nbytes <= len(data)
            one.array.tobytes()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.2 * count < refused < count and most < 4 << 20
