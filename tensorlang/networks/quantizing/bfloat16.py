"""Arrays of bfloat16, and products of them with sums in float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import ml_dtypes

from tensorlang import te
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, Load, cast
from tensorlang.networks.network import Network
from tensorlang.networks.quantizing.plan import plan_of
from tensorlang.networks.quantizing.probing import kept_nodes, opened
from tensorlang.networks.quantizing.products import Product, product_of
from tensorlang.networks.quantizing.writing import Writer, framed, written
from tensorlang.networks.winograd import stages_by_tiles
from tensorlang.schedules.cpu.matrix_tiles import has_tiles
from tensorlang.target import parse
from tensorlang.target.spec import Target
from tensorlang.te.operation import ComputeOp, Reduce
from tensorlang.te.reducer import builtin

_HALF_RATE = ("cooperlake", "sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d", "diamondrapids")
"""CPUs on which a dot instruction of bfloat16 takes the time of four multiply-adds of float32, for twice the products.

Source: uops.info, VDPBF16PS."""
_FEW_USES = 16
"""On these, weights that are used so often at most come from memory for as long as they are multiplied."""


def to_bfloat16(network: Network, keep: Sequence[str] = (), target: str | Target | None = None) -> Network:
    """Return the network with products of bfloat16 summed in float32, and what passes between them in bfloat16.

    Data and weights of products are rounded to 8 bits of precision; no samples are needed. Sums over each channel by
    itself and all else are made in float32. What is slower so on `target` (this machine's CPU unless given) stays as it
    is: where there is no matrix unit, convolutions that Winograd's algorithm takes, and on CPUs of Intel, whose dot
    instructions of bfloat16 are slow, products whose weights are used more than 16 times in a call. `keep`: nodes that
    stay as they are, by name or pattern. Raises ArgumentError for names that no node has, DefinitionError where there
    is no product by known weights.
    """
    found, machine = opened(network), parse(target)
    by_tiles = has_tiles("bfloat16", "bfloat16", machine)
    products = [product for op in found.program.ops if (product := product_of(op, found.weights)) is not None]
    if not any(product.is_matrix for product in products):
        raise DefinitionError(f"{network.name} has no products by known weights to make in bfloat16")
    slow = set[str]() if by_tiles else set(stages_by_tiles(found.program, found.weights, machine))
    if machine.cpu in _HALF_RATE and not by_tiles:
        slow |= {product.op.name for product in products if product.uses > _FEW_USES}
    kept = kept_nodes(network, keep) | {network.origin(name).node for name in slow}
    plan = plan_of(network, found.program, found.weights, kept)
    return found.closed(*written(found.program, found.weights, plan, BFloat16()))


@dataclass(frozen=True, slots=True)
class BFloat16:
    """The format of bfloat16."""

    @property
    def dtype(self) -> str:
        """That of the numbers."""
        return "bfloat16"

    def rounded(self, value: Expr, array: str) -> Expr:
        """The number next to a float."""
        return cast(value, "bfloat16")

    def meant(self, number: Load, array: str) -> Expr:
        """The same number as a float."""
        return cast(number, "float32")

    def constant(self, value: float, array: str) -> Expr:
        """The number next to a known float."""
        return te.const(float(ml_dtypes.bfloat16(value)), "bfloat16")

    def add_product(self, writer: Writer, product: Product) -> None:
        """A sum of products, with zeros around the data where it reaches beyond them."""
        op = product.op
        weight = writer.weights[product.weight.buffer.name].astype(ml_dtypes.bfloat16)
        factor = Load(writer.weight(f"{op.name}_weight", weight), product.weight.index)
        data = framed(writer, product, te.const(0.0, "bfloat16"))
        (old,) = op.body
        assert isinstance(old, Reduce)
        term = cast(data, "float32") * cast(factor, "float32")
        total = Reduce(builtin("sum", "float32"), (term,), old.axes, None, 0, "float32")
        made: ComputeOp = replace(op, body=(total,))
        writer.add(made)
