"""Whole networks: models of ONNX and of PyTorch as te programs, cut into kernels, run in one block of memory."""

from tensorlang.networks.compiling import compile_network
from tensorlang.networks.dynamic import DynamicModel, compile_dynamic
from tensorlang.networks.model import Model
from tensorlang.networks.network import Network
from tensorlang.networks.onnx.reading import from_onnx
from tensorlang.networks.refusal import Refusal, UnsupportedModel
from tensorlang.networks.starting import compile_model
from tensorlang.networks.torch.modules import from_torch

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
