"""Transforms of signals as NumPy has them, and regions of images as onnxruntime has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorlang.networks import UnsupportedModel
from tensorlang.networks.compiling import compile_network
from tensorlang.networks.onnx.reading import from_onnx
from tests.networks.models import Array, drawn, model, node

WINDOW = np.hanning(16).astype(np.float32)
REGIONS = np.array([[0, 0, 8, 6], [2.3, 1.2, 5.1, 9.7], [-3, -2, 1, 1], [4, 4, 4.2, 4.1]], np.float32)


def parts(made: Array) -> Array:
    """Complex numbers as pairs."""
    return np.stack([made.real, made.imag], -1)


def close(got: Array, want: Array) -> None:
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize(
    ("shape", "length", "axis", "attributes"),
    [
        ((2, 12, 1), None, None, {}),
        ((2, 12, 1), 20, -2, {"onesided": 1}),
        ((2, 12, 2), 9, 1, {}),
        ((2, 12, 2), None, 1, {"inverse": 1}),
        ((5, 3, 4, 2), None, 0, {}),
    ],
)
def test_transforms(shape: tuple[int, ...], length: int | None, axis: int | None, attributes: dict[str, int]) -> None:
    weights, x = {"n": np.array(length or 0), "a": np.array(axis or 0)}, drawn(*shape)
    inputs = f"x {'-' if length is None else 'n'} {'-' if axis is None else 'a'}"
    used = {name: array for name, array in weights.items() if name in inputs.split()}
    proto = model([node("DFT", inputs, "y", **attributes)], {"x": shape}, "y", used, opset=20)
    along = (len(shape) - 2 if axis is None else axis) % len(shape)
    numbers = x[..., 0].astype(complex) + (1j * x[..., 1] if shape[-1] == 2 else 0)
    want = (np.fft.ifft if attributes.get("inverse") else np.fft.fft)(numbers, length, along)
    if attributes.get("onesided"):
        want = want[:, : want.shape[1] // 2 + 1]
    close(compile_network(from_onnx(proto))(x), parts(want))


def test_an_attribute_is_the_axis_of_old_opsets() -> None:
    x = drawn(2, 3, 8, 1)
    proto = model([node("DFT", "x", "y", axis=2)], {"x": x.shape}, "y", opset=17)
    close(compile_network(from_onnx(proto))(x), parts(np.fft.fft(x[..., 0], axis=2)))


@pytest.mark.parametrize("known", [True, False])
def test_transforms_of_frames(known: bool) -> None:
    held, x = {"s": np.array(5), **({"w": WINDOW} if known else {})}, drawn(2, 60, 1)
    shapes = {"x": x.shape, **({} if known else {"w": (16,)})}
    proto = model([node("STFT", "x s w", "y", onesided=int(known))], shapes, "y", held)
    frames = np.lib.stride_tricks.sliding_window_view(x[..., 0], 16, 1)[:, ::5] * WINDOW
    want = np.fft.rfft(frames) if known else np.fft.fft(frames)
    close(compile_network(from_onnx(proto))(*([x] if known else [x, WINDOW])), parts(want))


@pytest.mark.parametrize("mode", ["half_pixel", "output_half_pixel"])
def test_regions_of_images(mode: str) -> None:
    attributes = {"output_height": 3, "output_width": 2, "sampling_ratio": 2, "spatial_scale": 0.9}
    proto = model(
        [node("RoiAlign", "x r b", "y", coordinate_transformation_mode=mode, **attributes)],
        {"x": (2, 3, 8, 9), "r": (4, 4), "b": (4,)},
        "y",
        dtypes={"b": np.int64},
    )
    runtime: Any = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    given = {"x": drawn(2, 3, 8, 9), "r": REGIONS, "b": np.array([0, 1, 1, 0])}
    close(compile_network(from_onnx(proto))(*given.values()), session.run(None, given)[0])


def test_what_is_not_taken_is_said() -> None:
    regions = node("RoiAlign", "x r b", "y")
    shapes = {"x": (2, 3, 8, 9), "r": (4, 4), "b": (4,)}
    with pytest.raises(UnsupportedModel, match="export it with sampling_ratio=2"):
        from_onnx(model([regions], shapes, "y", dtypes={"b": np.int64}))
    with pytest.raises(UnsupportedModel, match="up to 4096 are taken"):
        from_onnx(model([node("DFT", "x", "y", axis=1)], {"x": (1, 5000, 1)}, "y"))
