"""The axes of threads of a device, by the tags that bound loops carry."""

from __future__ import annotations

BLOCKS = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
THREADS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
VIRTUAL = "vthread"
"""Threads that one thread stands for, in turn."""
TAGS = (*BLOCKS, *THREADS, VIRTUAL)


def is_block(tag: str) -> bool:
    """Whether a tag numbers blocks."""
    return tag in BLOCKS


def is_thread(tag: str) -> bool:
    """Whether a tag numbers the threads of a block."""
    return tag in THREADS


def is_in_block(tag: str) -> bool:
    """Whether a tag numbers the threads of a block, or virtual ones."""
    return is_thread(tag) or tag == VIRTUAL
