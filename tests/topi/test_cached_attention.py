"""Attention of the newest tokens to a cache of keys and values, against the whole matrix of scores in float64."""

from __future__ import annotations

from collections.abc import Callable
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

    def check(self, target: str | None = None) -> None:
        """Check the result; where whole numbers of 16 bits are multiplied, to a hundredth of what int8 rounds away."""
        made, wanted = self.run(target)
        if self.dtype == "int8" and self.n * self.heads // self.groups * 16 <= self.depth:
            np.testing.assert_allclose(made, wanted, rtol=0, atol=0.01 * 0.5 / 99)
        else:
            close(made, wanted)

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


_NARROW = (((1, 4, 1, 64), "float32"), ((1, 1, 96, 64), "int8"), ((1, 1, 96), "float32"))
"""Queries, keys or values of bytes, and the scales of either."""
CASES = [
    Case(),
    Case(1, 4, 1, 2, 1024, 64, "float16"),
    Case(1, 3, 3, 1, 100, 16, "bfloat16", most=100),
    Case(2, 8, 2, 1, 160, 64, "int8"),
    Case(2, 8, 2, 1, 320, 64, "int8", page=32, window=50, most=320),
    Case(1, 3, 1, 2, 530, 128, "int8", most=530),
    Case(1, 2, 1, 3, 96, 16, "float16", page=16),
    Case(1, 6, 2, 1, 72, 64, page=8),
    Case(1, 10, 2, 1, 72, 128),
    Case(2, 8, 2, 1, 160, 64, "bfloat16", "bfloat16"),
    Case(1, 4, 2, 33, 64, 16, "bfloat16", "bfloat16", page=32),
    Case(1, 4, 2, 33, 64, 16, window=20),
    Case(1, 4, 2, 40, 64, 16, "int8", page=32, most=64),
    Case(1, 4, 2, 1, 72, 24, "float64", window=1),
    Case(1, 2, 1, 1, 1, 8),
    Case(2, 4, 2, 1, 12, 24, "int8", page=1),
]


@pytest.mark.covering(1)
@pytest.mark.parametrize("case", CASES)
def test_caches_of_all_kinds(case: Case) -> None:
    case.check()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("target", ["interpreter", on_opencl, on_cuda])
@pytest.mark.parametrize("case", [Case(capacity=32, depth=16), Case(1, 2, 1, 2, 32, 16, "int8", "float32", 16, 5, 32)])
def test_caches_elsewhere(case: Case, target: str) -> None:
    case.check(target)


def test_pairs_of_bfloat16_are_multiplied_by_one_instruction() -> None:
    q, k, v = (
        te.placeholder((1, h, n, 64), "bfloat16", name) for h, n, name in ((8, 1, "q"), (2, 96, "k"), (2, 96, "v"))
    )
    out = topi.cached_attention(q, k, v, te.placeholder((1,), "int32", "lengths"))
    steps = str(topi.schedule(out, "llvm -mcpu=znver4 -num-cores=1", tuned=False))
    assert "vdpbf16ps.pairs" in steps and "vdpbf16ps.rows" in steps
    assert "vdpbf16ps" not in str(topi.schedule(out, "llvm -mcpu=haswell", tuned=False))


@pytest.mark.parametrize(
    ("cpu", "word"),
    [("znver4", "avx512.vpdpwssd"), ("skylake-avx512", "avx512.vpmaddwd"), ("alderlake", "avx2.vpdpwssd"),
     ("haswell", "avx2.vpmaddwd")],
)  # fmt: skip
def test_bytes_are_multiplied_with_words_in_pairs(cpu: str, word: str) -> None:
    q, k, s = (te.placeholder(shape, dtype, "t") for shape, dtype in _NARROW)
    out = topi.cached_attention(q, k, k, te.placeholder((1,), "int32", "lengths"), s, s)
    steps = str(topi.schedule(out, f"llvm -mcpu={cpu} -num-cores=1", tuned=False))
    assert f"x86.{word}.pairs" in steps and f"x86.{word}.rows" in steps


@pytest.fixture(scope="module")
def narrow() -> Callable[..., Array]:
    """Attention of four queries of 64 numbers to 96 int8 keys: what it makes of queries, keys, values, and scales."""
    query, lengths = te.placeholder(_NARROW[0][0], name="q"), te.placeholder((1,), "int32", "lengths")
    caches, scales = ([te.placeholder(shape, dtype, f"{n}{len(shape)}") for n in "kv"] for shape, dtype in _NARROW[1:])
    out = topi.cached_attention(query, caches[0], caches[1], lengths, scales[0], scales[1])
    kernel = tensorlang.build(topi.schedule(out, tuned=False), [query, *caches, *scales, lengths, out])

    def run(*arrays: Array) -> Array:
        made = np.full(_NARROW[0][0], 77, np.float32)
        kernel(*arrays, np.array([96], np.int32), made)
        return made

    return run


def rounded(numbers: Array) -> tuple[Array, Array]:
    """Numbers in bytes, and the scale of each row."""
    scales = (abs(numbers).max(-1) / 127).astype(np.float32)
    return np.rint(numbers / np.where(scales > 0, scales, 1)[..., None]).astype(np.int8), scales


def off(made: Array, query: Array, keys: Array, values: Array) -> float:
    """How far a result is from attention in float64."""
    return float(abs(made - cached_attention_reference(query, keys, values, np.array([96], np.int32))).max())


@pytest.mark.parametrize("case", ["random", "one huge number", "tiny numbers", "one large value", "sharp"])
def test_whole_numbers_cost_little_of_what_int8_does(narrow: Callable[..., Array], case: str) -> None:
    rng = np.random.default_rng(len(case))
    query, keys, values = (
        rng.standard_normal(shape).astype(np.float32) for shape, _ in (_NARROW[n] for n in (0, 1, 1))
    )
    match case:
        case "one huge number":
            query[..., 5] = 300
            keys[..., 5] *= 0.02
        case "tiny numbers":
            query, keys = query * np.float32(1e-36), keys * np.float32(1e35)
        case "one large value":
            values[:, :, 7] *= 1000
        case "sharp":
            query *= 8
    (k, ks), (v, vs) = rounded(keys), rounded(values)
    near_keys, near_values = (c * s[..., None].astype(np.float64) for c, s in ((k, ks), (v, vs)))
    made = narrow(query, k, v, ks, vs)
    exact = cached_attention_reference(query, near_keys, near_values, np.array([96], np.int32))
    lost = off(exact, query, keys, values)
    assert abs(made - exact).max() < 0.05 * lost
    assert off(made, query, keys, values) < 1.05 * lost


def test_hostile_queries_and_scales(narrow: Callable[..., Array]) -> None:
    rng = np.random.default_rng(0)
    query = rng.standard_normal(_NARROW[0][0]).astype(np.float32)
    k, v = (rng.integers(-128, 128, _NARROW[1][0]).astype(np.int8) for _ in "kv")
    ones, mean = np.full(_NARROW[2][0], 0.01, np.float32), 0.01 * v.mean(2, dtype=np.float64).repeat(4, 1)[:, :, None]
    for zero in (
        (query * 0, ones),
        (query, ones * 0),
        (query * np.float32(1e-44), ones),
        (query, ones * np.float32(1e-42)),
    ):
        np.testing.assert_allclose(narrow(zero[0], k, v, zero[1], ones), mean, rtol=0, atol=1e-4)
    assert not narrow(query, k, v, ones, ones * 0).any()
    small = narrow(query * 0, k, v, ones, np.float32(1e-42) * ones)
    np.testing.assert_allclose(small, mean * 1e-42, rtol=0, atol=1e-44)
    negative = narrow(query, k, v, -ones, -ones)
    np.testing.assert_allclose(negative, -narrow(-query, k, v, ones, ones), rtol=0, atol=1e-6)
    mixed = ones.copy()
    mixed[..., 3], v[:, :, 3] = 1e30, 0
    assert abs(narrow(query, k, v, ones, mixed)).max() < 1e27
    query[0, 1, 0, 3] = np.nan
    made = narrow(query, k, v, ones, ones)
    assert np.isnan(made[0, 1]).all() and np.isfinite(made[0, [0, 2, 3]]).all()
    assert np.isnan(narrow(query * 0 + 1, k, v, ones, ones * np.float32(np.nan))).all()


@drawn(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 12), st.integers(12, 70), st.integers(1, 40),
    st.sampled_from(["float32", "int8"]), st.sampled_from([None, 1, 9]),
)  # fmt: skip
@settings(max_examples=3)
def test_odd_shapes(batch: int, each: int, n: int, more: int, depth: int, dtype: str, window: int | None) -> None:
    Case(batch, 2 * each, 2, n, n + more, depth, dtype, window=window).check()


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


@pytest.mark.parametrize(
    ("dtype", "heads", "fetched"), [("int8", 8, 2), ("float16", 8, 2), ("float32", 8, 0), ("float16", 10, 1)]
)
def test_rows_in_order_are_fetched_where_they_are_multiplied_longer_than_read(
    dtype: str, heads: int, fetched: int
) -> None:
    query, cache = te.placeholder((1, heads, 1, 128), name="query"), te.placeholder((1, 2, 512, 128), dtype, "cache")
    scales = te.placeholder((1, 2, 512), name="scales") if dtype == "int8" else None
    made = topi.cached_attention(query, cache, cache, te.placeholder((1,), "int32", "lengths"), scales, scales)
    steps = topi.schedule(made, "llvm -mcpu=znver4 -num-cores=1", tuned=False).trace.to_python()
    asked = [line for line in steps.splitlines() if ".prefetch(" in line]
    assert len(asked) == fetched and all("level=2" in line for line in asked)
