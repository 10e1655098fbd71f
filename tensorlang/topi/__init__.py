"""The operator library: what each operator computes, its NumPy reference, and a schedule for CPUs."""

from __future__ import annotations

from tensorlang.topi.dispatch import schedule
from tensorlang.topi.matmul import matmul
from tensorlang.topi.operator import Operator
from tensorlang.topi.table import OPERATORS, operator

__all__ = ["OPERATORS", "Operator", "matmul", "operator", "schedule"]
