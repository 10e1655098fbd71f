"""Attention of the newest tokens to a cache of keys and values, against the whole matrix of scores in float64."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

import tensorlang
from tensorlang import dtypes, te, topi
from tensorlang.errors import DefinitionError
from tensorlang.te.operation import Tensor
from tensorlang.topi.cached_attention import cached_attention_reference
from tests.device_targets import on_cuda, on_opencl
from tests.topi.programs import close

Array = npt.NDArray[Any]


@dataclass
class Case:
    """A cache of random numbers, sequences of random lengths, and what their newest tokens ask, of a dtype `asked`."""

    batch: int = 2
    heads: int = 4
    groups: int = 2
    n: int = 1
    capacity: int = 96
    depth: int = 32
    dtype: str = "float32"
    asked: str = "float32"
    page: int = 0
    window: int | None = None
    most: int | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def run(self, target: str | None = None) -> tuple[Array, Array]:
        """What the library makes of it, and the reference. Behind the keys of a sequence lie large numbers."""
        rng = np.random.default_rng(self.capacity + self.depth)
        asked = rng.standard_normal((self.batch, self.heads, self.n, self.depth))
        query: Array = asked.astype(dtypes.info(self.asked).numpy)
        lengths = rng.integers(self.n, self.capacity + 1, self.batch).astype(np.int32)
        shape, is_narrow = (self.batch, self.groups, self.capacity), self.dtype == "int8"
        arrays = [self._numbers(rng, (*shape, self.depth)) for _ in "kv"]
        scales = [rng.random(shape).astype(np.float32) / 99 for _ in "kv"] if is_narrow else []
        whole = [a.astype(np.float64) for a in arrays]
        if is_narrow:
            whole = [a * s[..., None] for a, s in zip(whole, scales, strict=True)]
        for array in arrays:
            for b, length in enumerate(lengths):
                array[b, :, length:] = 99 if is_narrow else 1e4
        wanted = cached_attention_reference(query, whole[0], whole[1], lengths, self.window)
        table = rng.permutation(self.batch * max(1, self.capacity // (self.page or 1))).reshape(self.batch, -1)
        given = [query, lengths, *(self._paged(a, table) for a in (*arrays, *scales))]
        names, told = ["q", "lengths", "keys", "values", "key_scales", "value_scales"], dict(self.options)
        tensors = [te.placeholder(a.shape, _dtype(a), name) for a, name in zip(given, names, strict=False)]
        if is_narrow:
            told |= {"key_scales": tensors[4], "value_scales": tensors[5]}
        if self.page:
            given.append(table.astype(np.int32))
            tensors.append(te.placeholder(table.shape, "int32", "table"))
            told["table"] = tensors[-1]
        if self.most:
            told["most"] = te.var("most")
        q, sizes, keys, values, *_ = tensors
        out = topi.cached_attention(q, keys, values, sizes, window=self.window, **told)
        symbols = [told["most"]] if self.most else []
        kernel = tensorlang.build(topi.schedule(out, target, tuned=False), [*tensors, *symbols, out], target=target)
        made = np.full(query.shape, 77, query.dtype)
        kernel(*given, *([self.most] if symbols else []), made)
        return made, wanted

    def _numbers(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        if self.dtype == "int8":
            return rng.integers(-127, 128, shape).astype(np.int8)
        return np.asarray(rng.standard_normal(shape)).astype(dtypes.info(self.dtype).numpy)

    def _paged(self, array: Array, table: Array) -> Array:
        if not self.page:
            return array
        parts = array.reshape(self.batch, self.groups, -1, self.page, *array.shape[3:]).swapaxes(1, 2)
        made = np.empty((table.size, *parts.shape[2:]), array.dtype)
        made[table.reshape(-1)] = parts.reshape(made.shape)
        return made


def _dtype(array: Array) -> str:
    return "bfloat16" if array.dtype.name == "bfloat16" else str(array.dtype)


CASES = [
    Case(),
    Case(1, 4, 1, 2, 1024, 64, "float16"),
    Case(1, 3, 3, 1, 100, 16, "bfloat16", most=100),
    Case(2, 8, 2, 1, 160, 64, "int8"),
    Case(2, 8, 2, 1, 320, 64, "int8", page=32, window=50, most=320),
    Case(1, 2, 1, 3, 96, 16, "float16", page=16),
    Case(2, 8, 2, 1, 160, 64, "bfloat16", "bfloat16"),
    Case(1, 4, 2, 33, 64, 16, "bfloat16", "bfloat16", page=32),
    Case(1, 4, 2, 33, 64, 16, window=20),
    Case(1, 4, 2, 40, 64, 16, "int8", page=32, most=64),
    Case(1, 4, 2, 1, 72, 24, "float64", window=1),
]


@pytest.mark.covering(1)
@pytest.mark.parametrize("case", CASES)
def test_caches_of_all_kinds(case: Case) -> None:
    close(*case.run())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("target", ["interpreter", on_opencl, on_cuda])
@pytest.mark.parametrize("case", [Case(capacity=32, depth=16), Case(1, 2, 1, 2, 32, 16, "int8", "float32", 16, 5, 32)])
def test_caches_elsewhere(case: Case, target: str) -> None:
    close(*case.run(target))


def test_pairs_of_bfloat16_are_multiplied_by_one_instruction() -> None:
    q, k, v = (
        te.placeholder((1, h, n, 64), "bfloat16", name) for h, n, name in ((8, 1, "q"), (2, 96, "k"), (2, 96, "v"))
    )
    out = topi.cached_attention(q, k, v, te.placeholder((1,), "int32", "lengths"))
    steps = str(topi.schedule(out, "llvm -mcpu=znver4 -num-cores=1", tuned=False))
    assert "vdpbf16ps.pairs" in steps and "vdpbf16ps.rows" in steps
    assert "vdpbf16ps" not in str(topi.schedule(out, "llvm -mcpu=haswell", tuned=False))


@drawn(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 12), st.integers(12, 70), st.integers(1, 40),
    st.sampled_from(["float32", "int8"]), st.sampled_from([None, 1, 9]),
)  # fmt: skip
@settings(max_examples=3)
def test_odd_shapes(batch: int, each: int, n: int, more: int, depth: int, dtype: str, window: int | None) -> None:
    close(*Case(batch, 2 * each, 2, n, n + more, depth, dtype, window=window).run())


def test_work_grows_with_the_keys_that_are_looked_at() -> None:
    """Keys beyond `most` are not even read: what lies there may be no number."""
    case = Case(1, 4, 1, 1, 2048, 32, most=512)
    rng = np.random.default_rng(3)
    query, keys = rng.standard_normal((1, 4, 1, 32)), rng.standard_normal((1, 1, 2048, 32))
    keys[:, :, 512:] = np.nan
    q, k, v = (te.placeholder(a.shape, "float32", n) for a, n in ((query, "q"), (keys, "k"), (keys, "v")))
    sizes, most = te.placeholder((1,), "int32", "sizes"), te.var("most")
    out = topi.cached_attention(q, k, v, sizes, most=most)
    kernel = tensorlang.build(topi.schedule(out, tuned=False), [q, k, v, sizes, most, out])
    made, length = np.full((1, 4, 1, 32), 77, np.float32), np.array([300], np.int32)
    arrays = [a.astype(np.float32) for a in (query, keys, keys)]
    kernel(*arrays, length, case.most, made)
    close(made, cached_attention_reference(query, keys[:, :, :512], keys[:, :, :512], length))


def test_few_queries_read_caches_as_they_lie() -> None:
    q, k = te.placeholder((1, 4, 1, 64), "float32", "q"), te.placeholder((1, 1, 4096, 64), "float16", "k")
    out = topi.cached_attention(q, k, te.placeholder(k.shape, k.dtype, "v"), te.placeholder((1,), "int32", "sizes"))
    s = topi.schedule(out, "llvm -num-cores=2", tuned=False)
    assert not any("global" in name for name in s.state.stages)
    assert "cached_attention_merged.rf" in s.state.stages


def refused(match: str, query: Tensor, keys: Tensor, **told: Any) -> None:
    values, sizes = told.pop("values", keys), told.pop("sizes", te.placeholder((2,), "int32", "sizes"))
    with pytest.raises(DefinitionError, match=match):
        topi.cached_attention(query, keys, values, sizes, **told)


def test_refusals() -> None:
    query, keys = te.placeholder((2, 4, 1, 8), name="q"), te.placeholder((2, 2, 32, 8), name="k")
    narrow = te.placeholder((2, 2, 32, 8), "int8", name="narrow")
    refused("multiple of groups", query, te.placeholder((2, 3, 32, 8), name="k"))
    refused("multiple of groups", query, te.placeholder((1, 2, 32, 8), name="k"))
    refused("have scales", query, narrow)
    refused("have scales", query, keys, key_scales=te.placeholder((2, 2, 32), name="s"))
    refused("of one dtype", query, keys, values=narrow)
    refused(r"lengths are int32\[batch\]", query, keys, sizes=te.placeholder((2,), "int64", "sizes"))
    refused(r"table are int32\[batch, pages", query, keys, table=te.placeholder((1, 2), "int32", "t"))
    refused("a window of 0 keys", query, keys, window=0)


def test_pages_are_fetched_from_far() -> None:
    """Machines read no pages ahead that lie anywhere: the table says where the next ones are."""
    query, lengths = te.placeholder((1, 8, 1, 64), name="query"), te.placeholder((1,), "int32", "lengths")
    keys, values = (te.placeholder((64, 2, 16, 64), name=name) for name in ("keys", "values"))
    table = te.placeholder((1, 64), "int32", "table")
    made = topi.cached_attention(query, keys, values, lengths, table=table)
    s = topi.schedule(made, "llvm -num-cores=2", tuned=False)
    asked = [line for line in s.trace.to_python().splitlines() if ".prefetch(" in line]
    assert len(asked) == 4 and sum("level=2" in line for line in asked) == 2
    assert ".parallel(" in s.trace.to_python()  # pages of all of a head are work for threads
