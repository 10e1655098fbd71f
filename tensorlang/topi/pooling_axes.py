"""Pooling over one or three axes, and adaptive pooling over any: windows as wide as the result asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, as_expr, binary, cast
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import Tensor
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed
from tensorlang.topi.convolution import Numbers, Padding, around, each
from tensorlang.topi.pooling import inside_window
from tensorlang.topi.windows import Window


def _axes(operator: str, data: Tensor, layout: str, letters: str) -> list[int]:
    """Which dimensions are pixels; DefinitionError for another layout."""
    if sorted(layout) != sorted(f"NC{letters}") or data.ndim != len(layout):
        raise DefinitionError(
            f"{operator} wants a layout of the letters NC{letters}, and data that have it; got {layout!r}"
        )
    return [layout.index(letter) for letter in letters]


def _summed(data: Tensor, pool_type: str) -> str:
    """The dtype in which windows are combined; DefinitionError for other words, and means of integers."""
    info = dtypes.info(data.dtype)
    if pool_type not in ("max", "avg") or (pool_type == "avg" and not info.is_float):
        raise DefinitionError(f"pool_type is max, or avg for floats; got {pool_type!r} of {data.dtype}")
    return "float32" if pool_type == "avg" and info.bits < 32 else data.dtype


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
        where, dtype = _axes(name, data, layout, letters), _summed(data, pool_type)
        given = (("kernel", kernel), ("stride", stride), ("dilation", dilation))
        sizes, steps, gaps = (each(name, word, numbers, rank) for word, numbers in given)
        before, after = around(name, padding, [(k - 1) * d for k, d in zip(sizes, gaps, strict=True)])
        windows = [Window(*row) for row in zip(sizes, steps, gaps, before, after, strict=True)]
        counts = [w.count(data.shape[d], ceil_mode) for w, d in zip(windows, where, strict=True)]
        inner = [te.reduce_axis((0, k), f"r{letter.lower()}") for k, letter in zip(sizes, letters, strict=True)]
        shape = [counts[where.index(d)] if d in where else n for d, n in enumerate(data.shape)]

        def element(*i: Expr) -> Expr:
            at, tests = list(i), list[Expr]()
            for w, d, r, count in zip(windows, where, inner, counts, strict=True):
                at[d] = w.at(i[d], r)
                tests += w.inside(i[d], r, data.shape[d], count)
            test = te.all(*tests) if len(tests) > 1 else next(iter(tests), None)
            combine = te.max if pool_type == "max" else te.sum
            return combine(cast(data(*at), dtype), axis=inner, where=test)

        made = computed(shape, element, name if pool_type == "max" else f"{name}_sum")
        if pool_type == "max":
            return made

        def mean(*i: Expr) -> Expr:
            count: Expr = as_expr(reduce(lambda a, b: a * b, sizes))
            if not count_include_pad:
                parts = [inside_window(w, i[d], data.shape[d]) for w, d in zip(windows, where, strict=True)]
                count = te.maximum(reduce(te.multiply, parts), 1)
            return cast(made(*i) / cast(count, dtype), data.dtype)

        return computed(shape, mean, name)

    operator.__name__ = operator.__qualname__ = name
    operator.__doc__ = (
        f"Return the maximum (`max`) or the mean (`avg`) of windows that slide over each channel, along {letters}.\n\n"
        "Padding and `ceil_mode` as for pool2d; DefinitionError for other words, and for means of integers."
    )
    return checked(operator)


def _adaptive(name: str, letters: str) -> Callable[..., Tensor]:
    """An operator whose windows divide the axes of some letters."""

    def operator(data: Tensor, output_size: Numbers, pool_type: str, layout: str = f"NC{letters}") -> Tensor:
        where, dtype = _axes(name, data, layout, letters), _summed(data, pool_type)
        wanted = each(name, "output_size", output_size, len(letters))
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

        def element(*i: Expr) -> Expr:
            at, tests = list(i), list[Expr]()
            for (low, high), d, r, n in zip(bounds(i), where, inner, extents, strict=True):
                at[d] = low + r
                tests += [binary("lt", low + r, high), binary("lt", low + r, n)]
            combine = te.max if pool_type == "max" else te.sum
            return combine(cast(data(*at), dtype), axis=inner, where=te.all(*tests))

        made = computed(shape, element, name if pool_type == "max" else f"{name}_sum")
        if pool_type == "max":
            return made

        def mean(*i: Expr) -> Expr:
            count = reduce(te.multiply, [high - low for low, high in bounds(i)])
            return cast(made(*i) / cast(count, dtype), data.dtype)

        return computed(shape, mean, name)

    operator.__name__ = operator.__qualname__ = name
    operator.__doc__ = (
        f"Return the maximum (`max`) or the mean (`avg`) of `output_size` windows that share out {letters}.\n\n"
        "Window k of o over n elements is those from k * n // o up to ceil((k + 1) * n / o). DefinitionError for\n"
        "other words, means of integers, and symbolic extents."
    )
    return checked(operator)


def _end(k: int, n: int, o: int) -> int:
    return -(-(k + 1) * n // o)


pool1d, pool3d = _pooled("pool1d", "W"), _pooled("pool3d", "DHW")
adaptive_pool = _adaptive("adaptive_pool", "HW")
adaptive_pool1d, adaptive_pool3d = _adaptive("adaptive_pool1d", "W"), _adaptive("adaptive_pool3d", "DHW")
