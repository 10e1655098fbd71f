"""The words by which definitions tell schedules what they mean: tags of stages, parts of tags, and attributes."""

from __future__ import annotations

ATTENTION, CACHED = "attention", "cached_attention"
"""The latter looks at a cache, of which each query sees what its data say."""
CONV2D, CONV2D_PRODUCT = "conv2d", "conv2d_product"
"""The latter takes the pixels of a convolution from a product before it."""
KEYS, SCORE, SCALED, GREATEST, WEIGHT, TOTAL, INVERSE, MIXED, MERGED = (
    ".keys", ".score", ".scaled", ".greatest", ".weight", ".total", ".inverse", ".mixed", ".merged"
)  # fmt: skip
QUERIES, VALUES, ROUNDED, SHARES = ".queries", ".values", ".rounded", ".shares"
LARGEST, CODES, LARGEST_SHARE, SHARE_CODES = ".largest", ".codes", ".largest_share", ".share_codes"
"""What the tags of the parts of an attention add to its own."""
CAUSAL = "causal"
"""The attribute of an attention that tells whether queries see earlier keys only."""
SHIFT = "shift"
"""The attribute of what is subtracted from a row, or divided by, and cancels out: the result does not depend on it."""
DERIVED = "derived"
"""The attribute of what is computed by a detour: the operation of the same axes that it is derived as, or why none."""
