"""Running compiled kernels: argument checks, executables, timing, the disk cache, and the OpenMP runtime."""
