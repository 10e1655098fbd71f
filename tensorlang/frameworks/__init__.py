"""Kernels as operators of PyTorch and JAX, with gradients made by te.gradient, and functions of arrays as kernels."""
