"""Networks as libraries: the bits of the process in anybody's memory and threads, from C, loaded, proven again."""

from __future__ import annotations

import ctypes
import json
import platform
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang.cli.main import main
from tensorlang.errors import ArgumentError, RecordError, ScheduleError, TargetError
from tensorlang.export.loading import prove
from tensorlang.networks import Model
from tensorlang.networks.compiling import compile_network
from tensorlang.networks.onnx.reading import from_onnx
from tests.export.exported import Loaded, dl_tensor, in_turn
from tests.networks.models import block, drawn, model, node, reference
from tests.thoroughness import draws

CC = shutil.which("cc")
INPUT = drawn(1, 6, 8, 8)


@cache
def compiled() -> Model:
    return compile_network(from_onnx(block()), "llvm -num-cores=2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network of convolutions as a library, with a program that tests it against the reference."""
    made = tmp_path_factory.mktemp("network")
    wanted = reference(block(), INPUT)
    compiled().export(made / "net", ("so", "cmake", "c"), faces=("c", "tvm_ffi"), check=[INPUT, *wanted])
    return made


def library(folder: Path) -> tuple[Loaded, Any]:
    """By ctypes, and its weights at a multiple of 64."""
    return Loaded("net", ctypes.CDLL(str(folder / "net.so"))), np.memmap(folder / "net.weights", np.uint8, "c")


def test_gives_the_bits_of_the_process_in_any_hands(folder: Path) -> None:
    net, weights = library(folder)
    wanted, found = compiled()(INPUT), np.zeros((1, 5), np.float32)
    host, asked = in_turn(lambda tasks: list(reversed(range(tasks))))
    for given, threads in ((None, 0), (host, 5)):
        found[...] = 0
        assert net.run([INPUT, found, weights], [], given, threads) == 0
        np.testing.assert_array_equal(found, wanted)
    assert asked == [5] * len(asked)
    assert net([INPUT, found, weights]) == 0


def test_calls_may_run_at_the_same_time(folder: Path) -> None:
    net, weights = library(folder)
    inputs = [drawn(1, 6, 8, 8, seed=k) for k in range(8)] * 5
    made = [np.zeros((1, 5), np.float32) for _ in inputs]
    with ThreadPoolExecutor(4) as pool:
        codes = list(pool.map(lambda x, y: net.run([x, y, weights], [], None), inputs, made))
    assert codes == [0] * 40
    for x, y in zip(inputs[:8], made, strict=False):
        np.testing.assert_array_equal(y, compiled()(x))


def test_wrong_weights_have_a_code(folder: Path) -> None:
    net, weights = library(folder)
    found = np.zeros((1, 5), np.float32)
    room = np.zeros(len(weights) + 128, np.uint8)
    shifted = room[-room.ctypes.data % 64 + 4 :][: len(weights)]
    shifted[...] = weights
    of_another = _aligned(weights)
    of_another[40] ^= 1
    for wrong in (shifted, of_another):
        assert net.run([INPUT, found, wrong], [], None) == -5
    places = [ctypes.c_void_p(v.ctypes.data) for v in (INPUT, found)]
    assert net[""](*places, ctypes.c_void_p(None)) == -5 and "weights" in net.message(-5)
    assert not found.any()


def _aligned(data: Any) -> Any:
    """A copy at a multiple of 64."""
    room = np.zeros(len(data) + 64, np.uint8)
    made = room[-room.ctypes.data % 64 :][: len(data)]
    made[...] = data
    return made


FLAGS: dict[str, list[str]] = {
    "strict": ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wmissing-prototypes", "-Werror", "-O1"],
    "asan": ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover"],
}


@pytest.mark.skipif(CC is None, reason="needs a C compiler")
@pytest.mark.parametrize("flags", list(FLAGS)[: draws(1, len(FLAGS))])
def test_from_c_without_python(folder: Path, flags: str, tmp_path: Path) -> None:
    runs = tmp_path / "net_test"
    command = [str(CC), *FLAGS[flags], "net_test.c", "net.a", "-lm", "-o", str(runs)]
    subprocess.run(command, cwd=folder, check=True)
    told = subprocess.run([runs, folder, "0.01"], capture_output=True, text=True, check=True).stdout
    assert told.startswith("net: as expected, ") and "a call" in told
    shutil.copytree(folder / "net_data", tmp_path / "net_data")
    damaged = bytearray((folder / "net.weights").read_bytes())
    damaged[64:] = bytes(len(damaged) - 64)  # all but the seal
    (tmp_path / "net.weights").write_bytes(damaged)
    wrong = subprocess.run([runs, tmp_path, "0"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 1 and "elements are wrong" in wrong.stderr
    damaged[60] ^= 1
    (tmp_path / "net.weights").write_bytes(damaged)
    refused = subprocess.run([runs, tmp_path, "0"], capture_output=True, text=True, check=False)
    assert refused.returncode == 1 and "not those of this library" in refused.stderr


def test_tensors_are_tested(folder: Path) -> None:
    net, weights = library(folder)
    found = np.zeros((1, 5), np.float32)
    assert net.dl(dl_tensor(INPUT), dl_tensor(found), dl_tensor(weights)) == 0
    np.testing.assert_array_equal(found, compiled()(INPUT))
    code = net.dl(dl_tensor(INPUT), dl_tensor(found), dl_tensor(weights[:-64]))
    assert (
        net.message(code)
        == f"net: argument 3 (weights): expected the shape [{len(weights)}], with the sizes that the others have"
    )


def test_a_library_is_a_model_again(folder: Path, tmp_path: Path) -> None:
    loaded = tensorlang.load(folder / "net.so")
    assert isinstance(loaded, Model) and list(loaded.inputs) == ["x"] and list(loaded.outputs) == ["y"]
    np.testing.assert_array_equal(loaded(INPUT), compiled()(INPUT))
    assert loaded.memory().arena == compiled().memory().arena > 0
    assert loaded.profile(INPUT, repeat=1)[0].operations == sum(step.operations for step in compiled().steps)
    with pytest.raises(ArgumentError, match=r"the input x is float32\[1, 6, 8, 8\], got float32\[8, 8\]"):
        loaded(np.zeros((8, 8), np.float32))
    with pytest.raises(TargetError, match="not built here"):
        loaded.export(tmp_path / "again")
    shutil.copy(folder / "net.so", tmp_path)
    with pytest.raises(RecordError, match="cannot be read"):
        tensorlang.load(tmp_path / "net.so")
    (tmp_path / "net.weights").write_bytes((folder / "net.weights").read_bytes()[:-1] + b"x")
    with pytest.raises(RecordError, match="holds other weights"):
        tensorlang.load(tmp_path / "net.so")


def test_outputs_that_are_inputs_or_known_or_used_again(tmp_path: Path) -> None:
    weights = {"c": drawn(2, 3, seed=1)}
    nodes = [node("Relu", "x", "r"), node("Add", "r c", "int"), node("Identity", "x", "same"), node("Neg", "c", "z")]
    proto = model(nodes, {"x": (2, 3)}, "r int same z", weights)
    made = compile_network(from_onnx(proto)).export(tmp_path / "many", embed=True)
    assert "float *TL_RESTRICT int_," in made.files["h"].read_text() and "weights" not in made.files
    x = drawn(2, 3, seed=5)
    for got, want in zip(tensorlang.load(made.files["so"])(x), reference(proto, x), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="several instruction sets are for x86-64")
def test_several_instruction_sets(tmp_path: Path) -> None:
    weights = {"w": drawn(20, 30, seed=1), "b": drawn(30, seed=2)}
    nodes = [node("MatMul", "x w", "m"), node("Add", "m b", "a"), node("Softmax", "a", "y")]
    proto = model(nodes, {"x": (7, 20)}, "y", weights)
    levels = ("x86-64-v2", "x86-64-v3")
    made = compile_network(from_onnx(proto)).export(tmp_path / "two", isas=levels)
    known = json.loads(made.files["json"].read_text())
    assert [v["cpu"] for v in known["variants"]] == ["x86-64-v3", "x86-64-v2"]
    assert all(len(kernel["variants"]) == 2 for kernel in known["network"]["kernels"])
    x = drawn(7, 20)
    np.testing.assert_allclose(tensorlang.load(made.files["so"])(x), reference(proto, x)[0], rtol=1e-4, atol=1e-6)


def test_the_proof_travels_along(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [proof.kernel for proof in prove(folder / "net.so")]
    assert names == list(dict.fromkeys(step.stage for step in compiled().steps))
    with pytest.raises(SystemExit) as code:
        main(["check", str(folder / "net.json")])
    assert code.value.code == 0 and capsys.readouterr().out.count(": legal") == len(names)


def _overlapping(network: Any) -> None:
    """Two arrays that one step reads and writes, in one place."""
    arena = {name for name, array in network["arrays"].items() if array["in"] == "arena"}
    inside = next(names for step in network["steps"] if len(names := [a for a in step["arrays"] if a in arena]) > 1)
    for name in inside:
        network["arrays"][name]["at"] = 0


def _backwards(network: Any) -> None:
    network["steps"].reverse()


def _outside(network: Any) -> None:
    network["arena"] = 64


def _of_another_shape(network: Any) -> None:
    network["arrays"]["x"]["shape"][0] = 2


def _writing_weights(network: Any) -> None:
    step = network["steps"][0]
    step["arrays"][-1] = next(name for name in step["arrays"] if network["arrays"][name]["in"] == "weights")


TAMPERED: dict[str, tuple[Callable[[Any], None], str]] = {
    "overlapping": (_overlapping, "share memory while both are in use"),
    "backwards": (_backwards, "before it is written"),
    "outside": (_outside, "lies outside of the arena"),
    "shape": (_of_another_shape, r"x is float32\[2, 6, 8, 8\], and its kernel takes"),
    "weights": (_writing_weights, "and its kernel takes|an input or a weight"),
}


@pytest.mark.parametrize("how", TAMPERED)
def test_what_cannot_be_right_is_refused(how: str, folder: Path, tmp_path: Path) -> None:
    known = json.loads((folder / "net.json").read_text())
    change, words = TAMPERED[how]
    change(known["network"])
    (tmp_path / "net.json").write_text(json.dumps(known))
    with pytest.raises(RecordError, match=words):
        prove(tmp_path / "net.json")


def test_illegal_steps_and_other_files_are_refused(folder: Path, tmp_path: Path) -> None:
    known = json.loads((folder / "net.json").read_text())
    (tmp_path / "net.json").write_text(json.dumps(known))
    (tmp_path / "net.weights").write_bytes(b"others")
    with pytest.raises(RecordError, match="is not the file that was exported"):
        prove(tmp_path / "net.json")
    kernel = known["network"]["kernels"][0]
    steps = kernel["variants"][0]["trace"]
    steps[0], steps[-1] = steps[-1], steps[0]
    (tmp_path / "net.json").write_text(json.dumps(known))
    with pytest.raises((RecordError, ScheduleError)):
        prove(tmp_path / "net.json")


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="check is 1 inputs, or those and 1 outputs, got 3 arrays"):
        compiled().export(tmp_path / "net", ("c",), check=[INPUT] * 3)
    with pytest.raises(ArgumentError, match="cannot be one"):
        compiled().export(tmp_path / "my-net")
    plain = compile_network(from_onnx(model([node("Relu", "x", "y")], {"x": (2, 3)}, "y")), "interpreter")
    with pytest.raises(TargetError, match="for CPUs"):
        plain.export(tmp_path / "net")
    assert not list(tmp_path.iterdir())
