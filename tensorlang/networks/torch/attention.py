"""Attention, with and without masks."""

from __future__ import annotations

import math

import numpy as np

from tensorlang import dtypes, te, topi
from tensorlang.ir.expr import Expr, binary
from tensorlang.networks.network import Value
from tensorlang.networks.node import element_of, shape_of
from tensorlang.networks.places import reshaped
from tensorlang.networks.refusal import Unsupported
from tensorlang.networks.torch.call import Call, Rule
from tensorlang.te.operation import Tensor


def _attention(call: Call) -> Value | tuple[Value | None, ...]:
    """softmax(query @ key.T * scale + mask) @ value; a query that sees no key has zeros."""
    if call["dropout_p"]:
        raise Unsupported("with dropout")
    call.only_first("the logarithm of sums")
    query, key, value = (_heads(call, name) for name in ("query", "key", "value"))
    mask, causal = call["attn_mask"], call["is_causal"]
    n, m = shape_of(query)[-2], shape_of(key)[-2]
    if causal and n != m:
        mask, causal = np.tril(np.ones((n, m), np.bool_)), False
    scale = 1 / math.sqrt(shape_of(query)[-1]) if call["scale"] is None else float(call["scale"])
    if mask is None:
        made = topi.attention(query, key, value, causal, scale, name=call.stage)
    elif causal:
        raise Unsupported("with a mask and causal as well")
    else:
        made = _masked(call, query, key, value, mask, scale)
    whole = reshaped(made, call.shape, f"{call.stage}_whole")
    return whole if len(call.made) == 1 else (whole, *[None] * (len(call.made) - 1))


def _heads(call: Call, name: str) -> Tensor:
    """An input as [batch, head, row, element], keys and values repeated where they have fewer heads than queries."""
    data = call.tensor(call[name])
    shape, wanted = shape_of(data), shape_of(call["query"])
    around = np.broadcast_shapes(*(shape_of(call[n])[:-3] for n in ("query", "key", "value")))
    count, heads = math.prod(around), wanted[-3] if len(wanted) > 2 else 1
    if shape[:-3] != around:
        raise Unsupported(f"of {name} that is broadcast")
    images = reshaped(data, (count, shape[-3] if len(shape) > 2 else 1, *shape[-2:]), f"{call.stage}_{name}")
    own = shape_of(images)[1]
    if own == heads:
        return images
    each = heads // own
    return call.compute(
        (count, heads, *shape[-2:]), lambda b, h, i, j: images(b, binary("floordiv", h, each), i, j), f"{name}_heads"
    )


def _masked(call: Call, query: Tensor, key: Tensor, value: Tensor, mask: Value, scale: float) -> Tensor:
    b, h, n = shape_of(query)[:3]
    m, depth = shape_of(value)[-2:]
    wide = dtypes.at_least_float32(query.dtype)
    q, k, v = (reshaped(t, (b * h, *shape_of(t)[2:]), f"{call.stage}_{w}3") for t, w in
               ((query, "q"), (key, "k"), (value, "v")))  # fmt: skip
    products = topi.batch_matmul(q, k, wide, name=f"{call.stage}_products")
    scores = reshaped(products, (b, h, n, m), f"{call.stage}_scores")
    rank = len(call.shape)
    covered = _as_heads(call, mask, rank, (b, h, n, m))
    infinite = te.const(-math.inf, wide)

    def element(*index: Expr) -> Expr:
        seen = covered(*_own(covered, index))
        score = scores(*index) * te.const(scale, wide)
        return te.select(seen, score, infinite) if seen.dtype == "bool" else score + seen.astype(wide)

    shares = call.onnx("Softmax", call.compute((b, h, n, m), element, "masked"), part="shares", axis=-1)
    shares = _without_blind(call, shares, covered, mask)
    narrow = call.tensor(call.cast(reshaped(shares, (b * h, n, m), f"{call.stage}_rows"), query.dtype, "narrow"))
    made = topi.batch_matmul(narrow, v, wide, transpose_b=False, name=f"{call.stage}_sums")
    return reshaped(call.tensor(call.cast(made, query.dtype, "out")), (b, h, n, depth), f"{call.stage}_heads")


def _as_heads(call: Call, mask: Value, rank: int, shape: tuple[int, ...]) -> Tensor:
    """A mask with dimensions for batch, head, query and key."""
    own = shape_of(mask)
    if rank > 4 and len(own) > 3:
        raise Unsupported(f"of {rank} dimensions with a mask of {len(own)}")
    whole = (1,) * (4 - len(own)) + own if rank >= 4 or len(own) < 3 else (1, *own)
    if rank == 3 and len(own) == 3:
        whole = (1, *own)
    return reshaped(call.tensor(mask), whole, f"{call.stage}_mask")


def _own(mask: Tensor, index: tuple[Expr, ...]) -> list[Expr | int]:
    return [0 if n == 1 else i for n, i in zip(shape_of(mask), index, strict=True)]


def _without_blind(call: Call, shares: Tensor, covered: Tensor, mask: Value) -> Tensor:
    """Zeros for queries that see no key."""
    if not isinstance(mask, Tensor):
        seen = mask if mask.dtype == np.bool_ else mask > -np.inf
        if np.all(seen.any(-1)):
            return shares
    shape = shape_of(covered)

    def bit(*index: Expr) -> Expr:
        value = element_of(covered, lambda: covered, index)
        sees = value if value.dtype == "bool" else binary("gt", value, te.const(-math.inf, value.dtype))
        return sees.astype("int32")

    most = topi.max(call.compute(shape, bit, "sees"), [3], keepdims=True, name=f"{call.stage}_seen")
    zero = te.const(0, shares.dtype)

    def element(*index: Expr) -> Expr:
        *outer, _ = _own(most, index)
        return te.select(binary("gt", most(*outer, 0), te.const(0, "int32")), shares(*index), zero)

    return call.compute(shape_of(shares), element, "kept")


RULES: dict[str, Rule] = {
    "_scaled_dot_product_flash_attention_for_cpu.default": _attention,
    "scaled_dot_product_attention.default": _attention,
}
