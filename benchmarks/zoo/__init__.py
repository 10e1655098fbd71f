"""Architectures of others, with random weights, and the backend tests of ONNX: what runs, and is equal."""
