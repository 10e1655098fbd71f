"""The operator library: what each operator computes, its NumPy reference and its competitor in NumPy."""

from __future__ import annotations

from tensorlang.topi.matmul import matmul
from tensorlang.topi.operator import OPERATORS, Operator, operator

__all__ = ["OPERATORS", "Operator", "matmul", "operator"]
