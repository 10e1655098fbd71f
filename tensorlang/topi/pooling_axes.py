"""Pooling over one or three axes, and adaptive pooling over any: windows as wide as the result asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod

from tensorlang import te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, as_expr, binary, cast
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import Tensor
from tensorlang.topi.checked import named
from tensorlang.topi.pooling import Pool, inside_window
from tensorlang.topi.windows import Numbers, Padding, each, windows_over


def _axes(operator: str, data: Tensor, layout: str, letters: str) -> list[int]:
    """Which dimensions are pixels; DefinitionError for another layout."""
    if sorted(layout) != sorted(f"NC{letters}") or data.ndim != len(layout):
        raise DefinitionError(
            f"{operator} wants a layout of the letters NC{letters}, and data that have it; got {layout!r}"
        )
    return [layout.index(letter) for letter in letters]


def _pooled(name: str, letters: str) -> Callable[..., Tensor]:
    """An operator over the axes of some letters."""
    rank = len(letters)

    def operator(
        data: Tensor,
        kernel: Numbers,
        stride: Numbers = 1,
        dilation: Numbers = 1,
        padding: Padding = 0,
        pool_type: str = "max",
        ceil_mode: bool = False,
        layout: str = f"NC{letters}",
        count_include_pad: bool = True,
    ) -> Tensor:
        where, pool = _axes(name, data, layout, letters), Pool.of(name, data, pool_type)
        sizes = each(f"{name}: kernel", kernel, rank)
        windows = windows_over(name, sizes, stride, padding, dilation)
        counts = [w.count(data.shape[d], ceil_mode) for w, d in zip(windows, where, strict=True)]
        inner = [te.reduce_axis((0, k), f"r{letter.lower()}") for k, letter in zip(sizes, letters, strict=True)]
        shape = [counts[where.index(d)] if d in where else n for d, n in enumerate(data.shape)]

        def element(*i: Expr) -> tuple[Expr, Expr | None]:
            at, tests = list(i), list[Expr]()
            for w, d, r, count in zip(windows, where, inner, counts, strict=True):
                at[d] = w.at(i[d], r)
                tests += w.inside(i[d], r, data.shape[d], count)
            test = te.all(*tests) if len(tests) > 1 else next(iter(tests), None)
            return cast(data(*at), pool.dtype), test

        def count(*i: Expr) -> Expr:
            if count_include_pad:
                return as_expr(prod(sizes))
            parts = [inside_window(w, i[d], data.shape[d]) for w, d in zip(windows, where, strict=True)]
            return te.maximum(reduce(te.multiply, parts), 1)

        return pool.over(shape, inner, element, count)

    doc = (
        f"Return the maximum (`max`) or the mean (`avg`) of windows that slide over each channel, along {letters}.\n\n"
        "Padding and `ceil_mode` as for pool2d; DefinitionError for other words, and for means of integers."
    )
    return named(name, doc, operator)


def _adaptive(name: str, letters: str) -> Callable[..., Tensor]:
    """An operator whose windows divide the axes of some letters."""

    def operator(data: Tensor, output_size: Numbers, pool_type: str, layout: str = f"NC{letters}") -> Tensor:
        where, pool = _axes(name, data, layout, letters), Pool.of(name, data, pool_type)
        wanted = each(f"{name}: output_size", output_size, len(letters))
        extents = [n for n in (extent_of(data.shape[d]) for d in where) if n is not None]
        if len(extents) < len(where):
            raise DefinitionError(f"{name}: {data} has symbolic extents; pool by windows of a size")
        shape = [wanted[where.index(d)] if d in where else n for d, n in enumerate(data.shape)]
        most = [max(_end(k, n, o) - k * n // o for k in range(o)) for n, o in zip(extents, wanted, strict=True)]
        inner = [te.reduce_axis((0, k), f"r{letter.lower()}") for k, letter in zip(most, letters, strict=True)]

        def bounds(i: Sequence[Expr]) -> list[tuple[Expr, Expr]]:
            rows = zip(where, extents, wanted, strict=True)
            return [
                (binary("floordiv", i[d] * n, o), binary("floordiv", (i[d] + 1) * n + (o - 1), o)) for d, n, o in rows
            ]

        def element(*i: Expr) -> tuple[Expr, Expr]:
            at, tests = list(i), list[Expr]()
            for (low, high), d, r, n in zip(bounds(i), where, inner, extents, strict=True):
                at[d] = low + r
                tests += [binary("lt", low + r, high), binary("lt", low + r, n)]
            return cast(data(*at), pool.dtype), te.all(*tests)

        return pool.over(shape, inner, element, lambda *i: reduce(te.multiply, [high - low for low, high in bounds(i)]))

    doc = (
        f"Return the maximum (`max`) or the mean (`avg`) of `output_size` windows that share out {letters}.\n\n"
        "Window k of o over n elements is those from k * n // o up to ceil((k + 1) * n / o). DefinitionError for\n"
        "other words, means of integers, and symbolic extents."
    )
    return named(name, doc, operator)


def _end(k: int, n: int, o: int) -> int:
    return -(-(k + 1) * n // o)


pool1d, pool3d = _pooled("pool1d", "W"), _pooled("pool3d", "DHW")
adaptive_pool = _adaptive("adaptive_pool", "HW")
adaptive_pool1d, adaptive_pool3d = _adaptive("adaptive_pool1d", "W"), _adaptive("adaptive_pool3d", "DHW")
