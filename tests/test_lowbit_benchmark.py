"""The benchmark of weights of a few bits, on a tiny matrix beside what is installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import main


def test_products_take_turns_with_a_read(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    out = tmp_path / "result.json"
    words = "lowbit --threads 1 --only q4_0,onnxruntime --vectors 1,2 --shape 64,128 --matrices 2 --rounds 2 --json"
    done = CliRunner().invoke(main, [*words.split(), str(out)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    result = json.loads(out.read_text())
    assert [(p["name"], p["vectors"]) for p in result["products"]] == [
        ("q4_0", 1), ("q4_0", 2), ("onnxruntime", 1), ("onnxruntime", 2)
    ]  # fmt: skip
    assert result["products"][0]["bytes"] == 2 * 64 * 128 // 32 * 18 and not result["missing"]
    assert all(p["seconds"] > 0 and p["read"] > 0 and p["share"] > 0 for p in result["products"])


def test_attention_takes_turns_with_a_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.lowbit_attention._BYTES", 1 << 18)
    out = tmp_path / "result.json"
    words = "lowbit --threads 1 --only attention-float16,attention-int8 --keys 32 --rounds 2 --json"
    done = CliRunner().invoke(main, [*words.split(), str(out)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    halves, bytes_ = json.loads(out.read_text())["products"]
    assert (halves["name"], halves["vectors"], halves["bytes"]) == ("attention-float16", 32, 2 * 2 * 2 * 8 * 32 * 128)
    assert bytes_["bytes"] % (2 * 8 * 32 * (128 + 4)) == 0 and bytes_["share"] > 0


def test_names_that_there_are() -> None:
    done = CliRunner().invoke(main, ["lowbit", "--only", "q9"])
    assert done.exit_code == 2 and "no format or peer is called 'q9'; there are q4_0, q4_1" in done.output
