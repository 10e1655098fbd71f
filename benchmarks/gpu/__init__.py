"""Benchmarks on a GPU: kernels beside the vendor's libraries, and what runs without a GPU: compilation, conformance."""
