"""Models that were compiled before: started without compiling, never with what another model, target or tuning made."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import config
from tensorlang.autotune import apply_history_best
from tensorlang.errors import ArgumentError, CacheRefused, DefinitionError
from tensorlang.networks import Model, compiling, starting
from tensorlang.networks.onnx.reading import from_onnx
from tensorlang.runtime import cache, ownership
from tensorlang.runtime.digest import digest_of
from tensorlang.target import parse
from tests.networks.models import drawn, model, node, onnx, reference

INPUT = drawn(4, 6)


def small(seed: int = 1, rows: Any = 4, depth: int = 6) -> Any:
    weights = {"w": drawn(depth, 9, seed=seed), "b": drawn(9, seed=seed + 1)}
    nodes = [node("MatMul", "x w", "m"), node("Add", "m b", "a"), node("Softmax", "a", "y")]
    return model(nodes, {"x": (rows, depth)}, "y", weights)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    """A model in a file, with a cache of its own."""
    onnx.save(small(), tmp_path / "small.onnx")
    with config.override(cache_dir=tmp_path / "cache", store=tmp_path / "store"):
        yield tmp_path / "small.onnx"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The networks that were compiled, and not started."""
    done: list[str] = []

    real = compiling.compile_with

    def compile_with(crew: Any, network: Any, *rest: Any) -> Model:
        done.append(network.name)
        return real(crew, network, *rest)

    monkeypatch.setattr(compiling, "compile_with", compile_with)
    return done


def test_a_second_start_compiles_nothing(file: Path, compiled: list[str], tmp_path: Path) -> None:
    first, told = tensorlang.compile(file), list[Any]()
    again = tensorlang.compile(str(file), progress=lambda *words: told.append(words))
    assert compiled == ["small"] and told == [(len(first.steps), len(first.steps), "")]
    np.testing.assert_array_equal(again(INPUT), first(INPUT))
    np.testing.assert_allclose(again(INPUT), reference(small(), INPUT)[0], rtol=1e-5)
    assert repr(again) == repr(first) and again.memory() == first.memory()
    assert [(s.stage, s.origin, s.operations) for s in again.steps] == [
        (s.stage, s.origin, s.operations) for s in first.steps
    ]
    assert again.profile(INPUT, repeat=1)[0].node
    made = again.export(tmp_path / "net")
    assert compiled == ["small"] * 2
    np.testing.assert_array_equal(tensorlang.load(made.files["so"])(INPUT), first(INPUT))
    onnx.save(small(seed=8), file)
    with pytest.raises(DefinitionError, match="has changed since it was compiled"):
        again.export(tmp_path / "net")


def test_a_second_start_imports_no_compiler(file: Path) -> None:
    code = f"""
import sys, numpy, tensorlang
x = numpy.ones({INPUT.shape}, numpy.float32)
tensorlang.compile({str(file)!r})(x)
print(*(name for name in sys.modules if name.count(".") < 2))
"""
    settings = {f"TENSORLANG_{name.upper()}": str(config.get(name)) for name in ("cache_dir", "store")}
    command, around = [sys.executable, "-c", code], os.environ | settings
    first, second = (
        subprocess.run(command, env=around, capture_output=True, check=True, text=True).stdout.split() for _ in range(2)
    )
    rooms = ("te", "schedule", "polyhedral", "lowering", "schedules", "topi", "driver")
    compiler = {"islpy", "llvmlite", "onnx", *(f"tensorlang.{room}" for room in rooms)}
    assert compiler <= {*first}
    kept = set() if (sys.platform, platform.machine()) == ("linux", "x86_64") else {"llvmlite"}
    assert not (compiler - kept | {"xgboost", "ml_dtypes", "tensorlang.autotune"}) & {*second}


def test_kernels_are_kept_where_settings_say(file: Path) -> None:
    parse()  # what LLVM says of this machine is kept, too
    before = len([*config.get("cache_dir").glob("*.o")])
    made = tensorlang.compile(file)
    kernels = {step.run for step in made.steps}
    assert len([*config.get("cache_dir").glob("*.o")]) == before + len(kernels) + 1


def test_what_determines_a_model_is_in_its_key(file: Path, compiled: list[str]) -> None:
    tensorlang.compile(file)
    onnx.save(small(seed=5), file)
    np.testing.assert_allclose(tensorlang.compile(file)(INPUT), reference(small(seed=5), INPUT)[0], rtol=1e-5)
    tensorlang.compile(file, "llvm -num-cores=3")
    onnx.save(small(rows="n"), file)
    for rows in (2, 3):
        assert tensorlang.compile(file, shapes={"x": (rows, 6)})(drawn(rows, 6)).shape == (rows, 9)
    assert len(compiled) == 5
    store = config.get("store")
    store.mkdir()
    (store / "others.jsonl").write_text("")  # whatever somebody tunes may be of this model
    tensorlang.compile(file, shapes={"x": (3, 6)})
    assert len(compiled) == 6
    tensorlang.compile(file, shapes={"x": (3, 6)})
    assert len(compiled) == 6


def test_models_in_fewer_bits_start_from_the_cache(file: Path, compiled: list[str], tmp_path: Path) -> None:
    onnx.save(small(depth=32), file)
    folder, samples = tmp_path / "samples", [drawn(4, 32, seed=seed) for seed in range(2)]
    folder.mkdir()
    for seed, sample in enumerate(samples):
        np.save(folder / f"{seed}.npy", sample)
    exact = tensorlang.compile(file)(samples[0])
    for how in ("weights", "bfloat16", folder, tensorlang.Quantization(data=samples)):
        compiled.clear()
        first = tensorlang.compile(file, quantize=how)
        assert compiled[-1] == "small" and not np.array_equal(first(samples[0]), exact)
        np.testing.assert_allclose(first(samples[0]), exact, atol=0.05)
        compiled.clear()
        again = tensorlang.compile(file, quantize=how)
        np.testing.assert_array_equal(again(samples[0]), first(samples[0]))
        assert not compiled and again.memory() == first.memory()
    again = tensorlang.compile(file, quantize=folder)
    np.save(folder / "1.npy", 9 * samples[1])
    with pytest.raises(DefinitionError, match="the samples of"):
        again.build_here()
    assert not compiled
    kinds: list[Path | tensorlang.Quantization] = [folder, tensorlang.Quantization(data=folder, method="entropy")]
    for number, kind in enumerate(kinds):
        tensorlang.compile(file, quantize=kind)
        assert len(compiled) > number  # it is compiled, and what its samples are run on


def test_what_quantize_takes(file: Path) -> None:
    for quantize, why in ((3, "weights, bfloat16, or a Quantization; got int"), ("none", "no folder")):
        with pytest.raises(ArgumentError, match=why):
            tensorlang.compile(file, quantize=quantize)  # type: ignore[arg-type]
    for given, why in ((("int4",), "into int8, weights, bfloat16"), ((), "give data"), (("weights", []), "no samples")):
        with pytest.raises(ArgumentError, match=why):
            tensorlang.Quantization(*given)
    with pytest.raises(ArgumentError, match=r"sample 0: the input x is float32\[4, 32\], got float32\[4, 5\]"):
        tensorlang.compile(from_onnx(small(depth=32)), quantize=tensorlang.Quantization(data=[drawn(4, 5)]))


def _torn(entry: Path) -> None:
    entry.write_bytes(entry.read_bytes()[:-7])


def _changed(entry: Path) -> None:
    data = bytearray(entry.read_bytes())
    data[-100] ^= 1
    entry.write_bytes(data)


def _writable(entry: Path) -> None:
    entry.chmod(0o666)


DAMAGE: dict[str, Callable[[Path], None]] = {
    "torn": _torn,
    "changed": _changed,
    "gone": Path.unlink,
    "writable": _writable,
}


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.filterwarnings("ignore::tensorlang.errors.CacheRefused")
def test_weights_that_are_not_whole_or_not_ours_are_made_again(how: str, file: Path, compiled: list[str]) -> None:
    wanted = tensorlang.compile(file)(INPUT)
    (weights,) = config.get("cache_dir").glob("*.weights")
    DAMAGE[how](weights)
    np.testing.assert_array_equal(tensorlang.compile(file)(INPUT), wanted)
    assert len(compiled) == 2
    np.testing.assert_array_equal(tensorlang.compile(file)(INPUT), wanted)
    assert len(compiled) == (3 if how == "writable" else 2)  # left alone, and told


@pytest.mark.parametrize("how", [_torn, _changed])
def test_weights_that_were_looked_at_are_looked_at_again_when_they_change(
    how: Callable[[Path], None], file: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "SETTLED", -1_000_000_000)
    wanted, looked = tensorlang.compile(file)(INPUT), list[Any]()

    def looking(parts: Any) -> str:
        looked.append(parts)
        return digest_of(parts)

    monkeypatch.setattr(starting, "digest_of", looking)
    for _ in range(3):
        np.testing.assert_array_equal(tensorlang.compile(file)(INPUT), wanted)
    assert len(compiled) == len(looked) == 1
    (weights,) = config.get("cache_dir").glob("*.weights")
    how(weights)
    np.testing.assert_array_equal(tensorlang.compile(file)(INPUT), wanted)
    assert len(compiled) == 2


def test_a_file_that_others_can_write_is_told(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_told", set())
    tensorlang.compile(file)
    (weights,) = config.get("cache_dir").glob("*.weights")
    weights.chmod(0o666)
    with pytest.warns(CacheRefused, match="can be written by others"):
        tensorlang.compile(file)


def test_what_is_not_kept(file: Path, compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log.jsonl").write_text("")
    with apply_history_best(tmp_path / "log.jsonl", miss="ignore"):
        tensorlang.compile(file)
    with config.override(cache=False):
        tensorlang.compile(file)
    tensorlang.compile(from_onnx(file))
    tensorlang.compile(small())
    monkeypatch.setattr(starting, "_LARGEST", 100)
    tensorlang.compile(file)
    assert not list(config.get("cache_dir").glob("*.weights")) and len(compiled) == 5
    with pytest.raises(ArgumentError, match="give them to from_onnx"):
        tensorlang.compile(from_onnx(file), shapes={"x": (4, 6)})
    with pytest.raises(DefinitionError, match="there is no file"):
        tensorlang.compile(tmp_path / "missing.onnx")


def saved_apart(seed: int, path: Path) -> None:
    """A model with its weights in a file beside it, as PyTorch exports them."""
    (path.parent / "apart.bin").unlink(missing_ok=True)
    onnx.save(small(seed), path, save_as_external_data=True, size_threshold=0, location="apart.bin")


def test_weights_in_a_file_of_their_own_are_content(file: Path, compiled: list[str], tmp_path: Path) -> None:
    path = tmp_path / "apart.onnx"
    saved_apart(1, path)
    model, first = path.read_bytes(), tensorlang.compile(path)(INPUT)
    np.testing.assert_array_equal(tensorlang.compile(path)(INPUT), first)
    assert len(compiled) == 1
    saved_apart(5, path)
    assert path.read_bytes() == model  # which says where weights lie, not what they are
    np.testing.assert_allclose(tensorlang.compile(path)(INPUT), reference(small(5), INPUT)[0], rtol=1e-5)
    assert len(compiled) == 2
    (tmp_path / "apart.bin").unlink()
    with pytest.raises(DefinitionError, match=r"apart\.bin"):
        tensorlang.compile(path)


def test_what_cannot_be_read_any_more_is_not_kept(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "content_of", lambda path: "")
    tensorlang.compile(file)
    assert not list(config.get("cache_dir").glob("*.weights"))


def test_weights_elsewhere_are_refused_before_they_are_read(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "inner" / "apart.onnx"
    path.parent.mkdir()
    saved_apart(1, path)
    proto = onnx.load(path, load_external_data=False)
    for entry in (e for tensor in proto.graph.initializer for e in tensor.external_data if e.key == "location"):
        entry.value = "../apart.bin"
    path.write_bytes(proto.SerializeToString())
    (path.parent / "apart.bin").rename(tmp_path / "apart.bin")
    with pytest.raises(DefinitionError, match="apart"):
        tensorlang.compile(path)
    assert not list(config.get("cache_dir").glob("*.weights"))


def test_weights_of_functions_are_content(file: Path, tmp_path: Path) -> None:
    """Tensors of nodes in functions, which lie in other files as those of nodes of graphs do."""
    tensor = onnx.TensorProto(data_type=onnx.TensorProto.FLOAT, dims=[6], data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="apart.bin")
    nodes = [node("Constant", "", "w", value=tensor), node("Add", "a w", "b")]
    opsets = [onnx.helper.make_opsetid(domain, 17) for domain in ("", "own")]
    own = onnx.helper.make_function("own", "AddWeights", ["a"], ["b"], nodes, opsets[:1])
    proto = model([node("AddWeights", "x", "y", domain="own")], {"x": (4, 6)}, "y")
    proto.opset_import.append(opsets[1])
    proto.functions.append(own)
    path = tmp_path / "functions.onnx"
    path.write_bytes(proto.SerializeToString())
    for weights in (drawn(6), drawn(6, seed=3)):
        (tmp_path / "apart.bin").write_bytes(weights.tobytes())
        np.testing.assert_array_equal(tensorlang.compile(path)(INPUT), INPUT + weights)
    path.write_bytes(path.read_bytes().replace(b"apart.bin", b"apart\xffbin"))
    with pytest.raises(DefinitionError, match="no UTF-8"):
        tensorlang.compile(path)


def test_what_is_no_file_is_refused_and_not_waited_for(file: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    for name in (tmp_path / "pipe.onnx", "model\0.onnx"):
        with pytest.raises(DefinitionError, match="there is no file"):
            tensorlang.compile(name)


def test_a_warning_that_is_an_error_is_raised(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given in another thread."""
    tensorlang.compile(file)
    config.get("cache_dir").chmod(0o777)
    monkeypatch.setattr(cache, "_told", set())
    with warnings.catch_warnings(), pytest.raises(CacheRefused):
        warnings.simplefilter("error")
        tensorlang.compile(file)


def test_files_that_were_not_used_for_longest_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "LARGE_BYTES", 250)
    with config.override(cache_dir=tmp_path / "cache"):
        for age, key in enumerate("abc"):
            if key == "c":
                assert cache.find_file(("a",), "weights") is not None
            assert cache.keep_file((key,), "weights", [bytes(100)])
            file = max((tmp_path / "cache").glob("*.weights"), key=lambda f: f.stat().st_mtime_ns)
            os.utime(file, (age, age)) if key != "c" else None
        assert [cache.find_file((key,), "weights") is not None for key in "abc"] == [True, False, True]


def test_a_module_of_pytorch_is_told_how_it_is_read() -> None:
    class Linear:
        def state_dict(self) -> dict[str, object]:
            return {}

    with pytest.raises(ArgumentError, match=r"tensorlang\.from_torch\(module, example\)\), .*; got Linear"):
        tensorlang.compile(Linear())
