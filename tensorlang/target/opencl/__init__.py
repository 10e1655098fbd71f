"""OpenCL: devices, kernels built from C text, and their launches."""
