"""What the templates do when they are called plainly, and no record says what is best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorlang.autotune.templates.config import Config
from tensorlang.autotune.templates.space import ConfigSpace


def set_fallback(cfg: Config, limits: Mapping[str, Sequence[int]]) -> None:
    """Set splits to the largest divisors within limits, innermost first; only where nobody chose a configuration."""
    if isinstance(cfg, ConfigSpace) and cfg.is_fallback:
        for name, parts in limits.items():
            cfg.fallback_split(name, parts)
