"""Models of ONNX as networks."""
