"""Models of PyTorch: graphs of ATen operators, read into networks."""
