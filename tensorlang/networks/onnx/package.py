"""The onnx package, which is an extra."""

from __future__ import annotations

from typing import Any

from tensorlang.errors import MissingDependency


def onnx_package() -> Any:
    """The package; MissingDependency says how it is installed."""
    try:
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
        import onnx.shape_inference
    except ImportError as error:
        raise MissingDependency("reading ONNX models needs the onnx package: pip install 'tensorlang[onnx]'") from error
    return onnx
