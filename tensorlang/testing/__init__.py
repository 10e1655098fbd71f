"""Tools for testing tensor programs and schedules: comparison, and random programs (`testing.strategies`)."""

from tensorlang.testing.compare import assert_allclose

__all__ = ["assert_allclose"]
