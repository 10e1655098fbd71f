"""Kernels as files: objects, libraries, headers, and what was proven of them.

`kernel.export(...)` of the driver writes them; the code itself is written by `target.llvm.library`.
"""
