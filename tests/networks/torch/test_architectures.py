"""Architectures of others with random weights, beside PyTorch and onnxruntime: by night."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.zoo.architectures import ARCHITECTURES, IMAGES, TEXTS
from benchmarks.zoo.runs import TOLERANCE, WAYS, differences, run
from tensorlang.networks.torch import report
from tensorlang.networks.torch.backend import compile_graph
from tests.profiles import NIGHTLY

torch = pytest.importorskip("torch")
by_night = pytest.mark.skipif(not NIGHTLY, reason="each architecture takes half a minute")


@by_night
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", [a.name for a in ARCHITECTURES])
def test_architectures(name: str, way: str) -> None:
    (architecture,) = (a for a in ARCHITECTURES if a.name == name)
    pytest.importorskip(architecture.package, exc_type=ImportError)
    if way == "onnx":
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnxscript", reason="torch.onnx.export needs onnxscript")
    found = run(name, way)
    assert not found.why and found.error <= TOLERANCE and found.kernels


@by_night
@pytest.mark.parametrize("name", [a.name for a in TEXTS])
def test_the_backend_of_torch_compile(name: str) -> None:
    (architecture,) = (a for a in TEXTS if a.name == name)
    pytest.importorskip(architecture.package, exc_type=ImportError)
    module, inputs = architecture.module(), architecture.example()
    torch._dynamo.reset()
    with torch.no_grad():
        made = torch.compile(module, backend=compile_graph)(**inputs)
        why, _ = differences(*([v.numpy() for v in found.values()] for found in (made, module(**inputs))))
    assert not why and report()[-1].taken


def test_differences_are_found() -> None:
    wanted = np.array([[1.0, 3.0]], np.float32)
    assert differences([wanted], [wanted]) == ("", 0.0)
    assert differences([wanted + 2e-5], [wanted])[0] == ""
    assert "differs by 2.0e-04 of the range" in differences([wanted + 2e-4], [wanted])[0]
    assert "float64[1, 2] in place of float32[1, 2]" in differences([wanted.astype(float)], [wanted])[0]
    assert "differs by inf" in differences([wanted * np.nan], [wanted])[0]
    assert "the same number everywhere" in differences([wanted], [wanted * 0])[0]


def test_the_table_is_wide() -> None:
    names = [a.name for a in ARCHITECTURES]
    assert len(names) == len(set(names)) and len(IMAGES) >= 25 and len(TEXTS) >= 10
