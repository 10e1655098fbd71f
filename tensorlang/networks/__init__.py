"""Whole networks: models of ONNX and of PyTorch as te programs, cut into kernels, run in one block of memory.

Names are imported when they are first used: a model that was compiled before starts without the compiler.
"""

from typing import TYPE_CHECKING, Any

from tensorlang.names import listing, lookup, offer

if TYPE_CHECKING:
    from tensorlang.networks.compiling import compile_network
    from tensorlang.networks.dynamic import DynamicModel, compile_dynamic
    from tensorlang.networks.model import Model
    from tensorlang.networks.network import Network
    from tensorlang.networks.onnx.reading import from_onnx
    from tensorlang.networks.refusal import Refusal, UnsupportedModel
    from tensorlang.networks.starting import compile_model
    from tensorlang.networks.torch.modules import from_torch

offer(
    __name__,
    {
        "DynamicModel": "tensorlang.networks.dynamic:DynamicModel",
        "Model": "tensorlang.networks.model:Model",
        "Network": "tensorlang.networks.network:Network",
        "Refusal": "tensorlang.networks.refusal:Refusal",
        "UnsupportedModel": "tensorlang.networks.refusal:UnsupportedModel",
        "compile_dynamic": "tensorlang.networks.dynamic:compile_dynamic",
        "compile_model": "tensorlang.networks.starting:compile_model",
        "compile_network": "tensorlang.networks.compiling:compile_network",
        "from_onnx": "tensorlang.networks.onnx.reading:from_onnx",
        "from_torch": "tensorlang.networks.torch.modules:from_torch",
    },
)
__all__ = [
    "DynamicModel",
    "Model",
    "Network",
    "Refusal",
    "UnsupportedModel",
    "compile_dynamic",
    "compile_model",
    "compile_network",
    "from_onnx",
    "from_torch",
]


def __getattr__(name: str) -> Any:
    return lookup(__name__, name)


def __dir__() -> list[str]:
    return listing(__name__)
