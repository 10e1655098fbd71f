"""The benchmark of weights of a few bits, on a tiny matrix beside what is installed."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner

from benchmarks.__main__ import main
from examples.llm.parameters import Parameters
from tensorlang import gguf


def test_products_take_turns_with_a_read(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    out = tmp_path / "result.json"
    names = "q4_0,int4-128,onnxruntime"
    words = f"lowbit --threads 1 --only {names} --vectors 1,2 --shape 64,128 --matrices 2 --rounds 2 --json"
    done = CliRunner().invoke(main, [*words.split(), str(out)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    result = json.loads(out.read_text())
    assert [(p["name"], p["vectors"]) for p in result["products"]] == [
        ("q4_0", 1), ("q4_0", 2), ("int4-128", 1), ("int4-128", 2), ("onnxruntime", 1), ("onnxruntime", 2)
    ]  # fmt: skip
    assert result["products"][0]["bytes"] == 2 * 64 * 128 // 32 * 18 and not result["missing"]
    assert all(p["seconds"] > 0 and p["read"] > 0 and p["share"] > 0 for p in result["products"])


def test_ggml_is_a_peer_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.lowbit_attention._BYTES", 1 << 18)
    out = tmp_path / "result.json"
    names = "q4_0,ggml-q4_0,ggml-attention-float16"
    words = f"lowbit --threads 1 --only {names} --vectors 2 --keys 32 --shape 64,128 --matrices 2"
    done = CliRunner().invoke(main, [*words.split(), "--rounds", "2", "--json", str(out)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    result = json.loads(out.read_text())
    own, *others = result["products"]
    if importlib.util.find_spec("llama_cpp") is None:
        missing = "No module named 'llama_cpp'"
        assert not others and result["missing"] == {"ggml-q4_0": missing, "ggml-attention-float16": missing}
        return
    product, attention = others
    assert (product["bytes"], product["operations"]) == (own["bytes"], own["operations"])
    assert attention["bytes"] == 1 << 18 and attention["share"] > 0


def test_attention_takes_turns_with_a_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.lowbit_attention._BYTES", 1 << 18)
    out = tmp_path / "result.json"
    words = (
        "lowbit --threads 1 --only attention-float16,attention-int8,attention-paged-float32 --keys 32 --rounds 2 --json"
    )
    done = CliRunner().invoke(main, [*words.split(), str(out)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    halves, bytes_, paged = json.loads(out.read_text())["products"]
    assert (halves["name"], halves["vectors"], halves["bytes"]) == ("attention-float16", 32, 2 * 2 * 2 * 8 * 32 * 128)
    assert bytes_["bytes"] % (2 * 8 * 32 * (128 + 4)) == 0 and bytes_["share"] > 0
    assert paged["bytes"] == 1 << 18 and paged["share"] > 0


def test_a_layer_takes_turns_with_a_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = Parameters(1, 64, 64, 2, 1, vocabulary=1, context=32, epsilon=1e-5, base=10000.0)
    for name, value in {"_LAYERS": 2, "KEYS": 16, "_MODEL": small}.items():
        monkeypatch.setattr(f"benchmarks.lowbit_layer.{name}", value)
    out = tmp_path / "result.json"
    words = "lowbit --threads 1 --only layer --rounds 2 --json"
    done = CliRunner().invoke(main, [*words.split(), str(out)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    (layer,) = json.loads(out.read_text())["products"]
    weights, cached = (4 * 64 + 2 * 32 + 64) * 64 // 32 * 18, 2 * 16 * 32 * 2
    assert (layer["name"], layer["vectors"], layer["bytes"]) == ("layer", 16, 2 * (weights + cached))
    assert layer["share"] > 0


def test_a_decoder_is_timed_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gguf")
    small = {"_WIDTH": 64, "_HIDDEN": 64, "_HEADS": 2, "_GROUPS": 1, "_VOCABULARY": 32, "_CONTEXT": 32, "_TOKENS": 2}
    for name, value in small.items():
        monkeypatch.setattr(f"benchmarks.decoder.{name}", value)

    class Reads:
        """As much as the benchmark asks of a decoder, and of llama.cpp."""

        def __init__(self, path: str | Path, context: int, threads: int = 1) -> None:
            self.lengths, self.logits = np.zeros(1, np.int32), np.arange(32.0)
            file = gguf.load(path)
            assert (file.metadata["llama.vocab_size"], context, threads) == (32, 32, 1)
            assert {tensor.format for name, tensor in file.tensors.items() if "norm" not in name} == {"q4_0"}

        def forget(self) -> None:
            self.lengths[:] = 0

        def read(self, tokens: list[int]) -> npt.NDArray[Any]:
            self.lengths += len(tokens)
            assert self.lengths[0] <= 5 + 3
            return self.logits[::-1]

        prefill = read

        def decode(self, tokens: list[int]) -> npt.NDArray[Any]:
            return self.read(tokens)[None]

    class Own(Reads):
        """Logits the other way around, which is as far apart as logits can be."""

        load = classmethod(lambda cls, path, context: cls(path, context))

        def read(self, tokens: list[int]) -> npt.NDArray[Any]:
            return super().read(tokens)[::-1]

        prefill = read

    monkeypatch.setattr("benchmarks.decoder.Decoder", Own)
    monkeypatch.setattr("benchmarks.decoder.Reference", Reads)
    monkeypatch.setattr("benchmarks.decoder.Exported", lambda own, folder: own)
    monkeypatch.setattr("benchmarks.decoder.shutil.which", lambda name: name)
    out = tmp_path / "result.json"
    words = "decoder --threads 1 --layers 1 --prompt 5 --rounds 2 --json"
    done = CliRunner().invoke(main, [*words.split(), str(out)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    result = json.loads(out.read_text())
    assert [one["name"] for one in result["decoders"]] == ["tensorlang", "exported", "llama.cpp"]
    assert all(one["token"] > 0 and one["prompt"] > 0 and one["share"] > 0 for one in result["decoders"])
    assert result["apart"] == pytest.approx(2.0)


def test_names_that_there_are() -> None:
    done = CliRunner().invoke(main, ["lowbit", "--only", "q9"])
    assert done.exit_code == 2 and "no format or peer is called 'q9'; there are q4_0, q4_1" in done.output
