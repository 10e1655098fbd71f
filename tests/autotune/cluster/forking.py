"""What the workers of a cluster load when they start: their processes for candidates are forked, as in other tests."""

from __future__ import annotations

from tensorlang.autotune.measuring import pool
from tests.forked_workers import Spawners

setattr(pool, "launch", Spawners().launch)  # noqa: B010
