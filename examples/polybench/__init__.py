"""The 30 kernels of PolyBench/C 4.2 as scripts, each with arrays, a law that checks it, and a schedule."""

from __future__ import annotations

from examples.polybench import blas, datamining, kernels, medley, solvers, stencils
from examples.polybench.case import Case as Case

KERNELS: dict[str, Case] = {
    case.name: case for group in (datamining, blas, kernels, solvers, medley, stencils) for case in group.CASES
}
