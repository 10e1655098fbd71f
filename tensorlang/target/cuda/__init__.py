"""CUDA: device kernels to cubins by NVRTC, and their launches by CuPy."""
