"""Names in error messages: what there is, and what was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from tensorlang.names import AbsentAttribute, explanation, meant

_ONE_STAGE = "s[C] is the stage of C, C.op its operation"
_OPEN = "use sample_choice or sample_perfect_tile"
_SHAPES = "tiles need not divide the extents: tail='guard' or tail='peel'"
ABSENT = {
    **dict.fromkeys(("get_block", "get_consumers", "get_producers", "get_sref"), _ONE_STAGE),
    **dict.fromkeys(("sample_categorical", "sample_compute_location", "sample_partitioned_tile"), _OPEN),
    "decompose_padding": _SHAPES,
    "pad_einsum": "pad on the copies of the factors, and on the sums",
    "add_unit_loop": "split an axis by factor 1",
    "annotate": "use pragma",
    "annotate_buffer_access": "reads and writes are known exactly",
    "blockize": "tensorize takes the loop itself",
    "cache_index": "index arithmetic is hoisted by the compiler",
    "copy": "make another with te.create_schedule, then other.replay(s.trace)",
    "get_child_blocks": "s.stages holds all stages",
    "get_loops": "s[C].leaf_iter_vars are the loops of a stage",
    "get_output_blocks": "s.outputs holds the operations",
    "loop_partition": "use partition, or split(..., tail='peel')",
    "merge": "use fuse_with",
    "mod": "print tensorlang.lower(s, args)",
    "reindex": "use transform_layout on the stage of a cache_read",
    "reindex_cache_read": "use transform_layout on the stage of a cache_read",
    "reindex_cache_write": "use transform_layout on the stage of a cache_write",
    "reorder_block_iter_var": "use reorder, or transform_layout for the array",
    "reverse_compute_inline": "s[producer].compute_inline() makes one stage of the two",
    "seed": "decisions are fields of sample_choice; the tuner takes a seed",
    "set_axis_separator": "arrays have one flat memory",
    "show": "print(s), or s.explain()",
    "tag": "s[C].op.tag",
    "transform_block_layout": "use affine for the loops, transform_layout for the array",
    "unannotate": "leave the step out of the trace and replay it",
    "unsafe_hide_buffer_access": "every access counts in a proof; state facts with s.assume",
    "unsafe_set_dtype": "declare the dtype in te",
    "work_on": "operations have names, blocks do not exist",
}
"""Attributes of schedules and stages (te's, and those of tvm.tir.Schedule) -> what to do instead."""


WORDS = {
    "align_storage": "use storage_align",
    "async_": "use pipeline or double_buffer, which compute a tile ahead",
    "compute_with": "use fuse_with",
    "gpu_blocks": "bind loops to blockIdx.x, ...",
    "gpu_threads": "bind loops to threadIdx.x, ...",
    "hoist_storage": "use compute_at on the loop outside, then rolling_buffer keeps what is used again",
    "inline": "use compute_inline",
    "jam": "use unroll on the loop outside, split, and reorder",
    "permute": "use reorder",
    "reorder_storage": "use transform_layout",
    "ring_buffer": "use rolling_buffer to keep rows, pipeline to compute ahead",
    "slide": "use compute_at, then rolling_buffer",
    "store_at": "use compute_at on the loop inside, then rolling_buffer keeps what it uses again in a ring",
    "store_in": "use set_scope",
    "store_root": "use compute_at on the loop inside, then rolling_buffer keeps what it uses again in a ring",
    "transpose": "use reorder for loops, transform_layout for arrays",
    "vectorise": "use vectorize",
}
"""Attributes of other schedules (Halide's, loopy's) -> what to use."""


def absent(owner: str, name: str, elsewhere: str, known: Iterable[str]) -> AttributeError:
    """The error for an attribute that other schedules have and tensorlang's lack, or that is found `elsewhere`."""

    def reason() -> str:
        if elsewhere:
            return f"; there is {elsewhere}.{name}"
        said = f"; {WORDS[name]}" if name in WORDS else explanation(ABSENT.get(name))
        return said or ("" if name.startswith("__") else meant(name, known))

    return AbsentAttribute(f"{owner} has no {name!r}", name, reason)


def nearest(name: str, known: Iterable[str]) -> str:
    """`it has a, b, c; did you mean b?`."""
    names = list(known)
    close = get_close_matches(name, names, n=1)
    listed = ", ".join(names) or "none"
    return f"there are {listed}" + (f"; did you mean {close[0]}?" if close else "")
