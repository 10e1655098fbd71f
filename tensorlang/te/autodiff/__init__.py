"""Reverse-mode derivatives of te programs, as te programs.

`gradient` walks the operations backwards. Each read of a tensor passes a term of the adjoint back (`terms`); which
iterations touch an element is solved, not scattered (`invert`), so that every adjoint is an ordinary compute.
"""

from tensorlang.te.autodiff.gradient import gradient

__all__ = ["gradient"]
