"""Benchmarks: figures with their goals, by `python -m benchmarks`."""
