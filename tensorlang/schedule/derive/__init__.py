"""From a schedule state to what isl needs: statements in axis space, their tree, and the size of every buffer."""

from tensorlang.schedule.derive.derivation import derive, ranges_in_place

__all__ = ["derive", "ranges_in_place"]
