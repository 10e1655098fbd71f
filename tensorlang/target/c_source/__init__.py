"""Device kernels as C text: CUDA C and OpenCL C from one printer and a table of dialects."""

from tensorlang.target.c_source.dialect import CUDA, OPENCL, Dialect
from tensorlang.target.c_source.kernel import device_source, module_source
from tensorlang.target.c_source.source import Module, Source

__all__ = ["CUDA", "OPENCL", "Dialect", "Module", "Source", "device_source", "module_source"]
