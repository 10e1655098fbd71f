"""CUDA: device kernels to cubins by NVRTC, and their launches by CuPy.

The module can be called: `tensorlang.target.cuda()` is the target, as in classic te.
"""

from __future__ import annotations

import sys
from types import ModuleType

from tensorlang.target.detect import parse
from tensorlang.target.spec import Target


class _Callable(ModuleType):
    def __call__(self, model: str = "unknown", arch: str | None = None, options: str = "") -> Target:
        """Return the target cuda for an architecture (None: the device of the arrays) with further options as text.

        `model` is accepted for classic te's sake.
        """
        return parse(" ".join(filter(None, ("cuda", f"-arch={arch}" if arch else "", options))))


sys.modules[__name__].__class__ = _Callable
