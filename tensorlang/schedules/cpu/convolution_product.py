"""Convolutions as products of matrices in memory."""

from __future__ import annotations

from tensorlang.schedule import Schedule
from tensorlang.schedules.anchor import Anchor, compute_op
from tensorlang.schedules.cpu.points import schedule_elementwise
from tensorlang.schedules.cpu.product import schedule_product
from tensorlang.te.operation import loads


def product_before(s: Schedule, output: str) -> str:
    """The stage of the product that a stage tagged `CONV2D_PRODUCT` takes its pixels from."""
    (read,) = loads(compute_op(s, output))
    return s.program.producer[read.buffer.name]


def schedule_in_memory(s: Schedule, anchor: Anchor) -> None:
    """Schedule a product for a target that has no tensor cores: its rows are laid out in memory first."""
    product = product_before(s, anchor.main)
    schedule_product(s, Anchor(product, product, anchor.target))
    if anchor.main != anchor.output:
        s[anchor.main].compute_inline()
    schedule_elementwise(s, anchor.output, anchor.target)
