"""`python -m benchmarks.peers MODULE`: the process of a contestant, whose builders are in the module."""

from __future__ import annotations

import importlib
import os
import sys

import numpy as np

from benchmarks.peers.serve import serve

if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    module = importlib.import_module(sys.argv[1])
    serve(module.BUILDERS, getattr(module, "to_numpy", np.asarray), answers)
