"""Every primitive on a small example: the loops it makes (golden), and the same results as the reference."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tensorlang import lower, te
from tensorlang.schedule import Schedule
from tensorlang.testing.check import check_schedule
from tests.intrinsics import tile_matmul
from tests.programs import Case, argmax, chain, matmul, plane_sum, row_sum, stencil, two_consumers, with_extern

n, m = te.var("n"), te.var("m")
Example = tuple[Callable[..., object], ...]


def padded() -> Case:
    """B = A with a border of zeros; C = the sum of three neighbours of B."""
    A = te.placeholder((10,), name="A")
    B = te.compute((12,), lambda i: te.if_then_else(te.all(i >= 1, i < 11), A[i - 1], 0.0), name="B")
    C = te.compute((10,), lambda i: B[i] + B[i + 1] + B[i + 2], name="C")
    return Case(te.create_schedule(C.op), (A, C))


def whole_sum() -> Case:
    """B = the sum of A, C = 2 B: no axes."""
    A, k = te.placeholder((10,), name="A"), te.reduce_axis((0, 10), "k")
    B = te.compute((), lambda: te.sum(A[k], axis=k), name="B")
    C = te.compute((), lambda: B() * 2, name="C")
    return Case(te.create_schedule(C.op), (A, C))


def transposed(extent: te.Var | int = 10) -> Case:
    """B = A + 1 over 6 columns; C = B transposed."""
    A = te.placeholder((extent, 6), name="A")
    B = te.compute((extent, 6), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((6, extent), lambda j, i: B[i, j] * 2, name="C")
    return Case(te.create_schedule(C.op), (A, C))


def scanned() -> Case:
    """The state doubled, and X added, in every time step."""
    X, state = te.placeholder((6, 8), name="X"), te.placeholder((6, 8), name="state")
    init = te.compute((1, 8), lambda t, i: X[t, i], name="init")
    double = te.compute((6, 8), lambda t, i: state[t - 1, i] * 2, name="double")
    update = te.compute((6, 8), lambda t, i: double[t, i] + X[t, i], name="update")
    S = te.scan(init, update, state, name="S")
    return Case(te.create_schedule(S.op), (X, S))


def gathered() -> Case:
    """C = x at the places that idx holds."""
    x, idx = te.placeholder((8,), name="x"), te.placeholder((6,), "int32", name="idx")
    C = te.compute((6,), lambda i: x[te.maximum(idx[i], 0)], name="C")
    return Case(te.create_schedule(C.op), (x, idx, C))


def matmul_and_relu(rows: te.Var, columns: te.Var) -> Case:
    """D = max(C, 0), C = A B."""
    A, B = te.placeholder((rows, 6), name="A"), te.placeholder((6, columns), name="B")
    k = te.reduce_axis((0, 6), "k")
    C = te.compute((rows, columns), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    D = te.compute((rows, columns), lambda i, j: te.maximum(C[i, j], 0.0), name="D")
    return Case(te.create_schedule(D.op), (A, B, D))


def packed(s: Schedule) -> None:
    """The usual way of a fast matmul: packed panels, a register tile in a cache, vectors and threads."""
    T = s.cache_write("C", "local")
    i_o, j_o, i_i, j_i = s["C"].tile("i", "j", 2, 4, tail="peel")
    s["C"].reorder(j_o, i_o, i_i, j_i)
    s[T].compute_at(s["C"], i_o)
    k_o, k_i = s[T].split("k", factor=4)
    s[T].reorder(k_o, k_i, "i", "j")
    s[T].vectorize("j")
    s[T].unroll("i")
    P = s.cache_read("B", "global", [T])
    s[P].transform_layout(lambda k, j: (j // 4, k, j % 4))
    s[P].vectorize("p2")
    s["C"].vectorize(j_i)
    s["C"].parallel(j_o)


def sampled_layout(s: Schedule) -> None:
    """Rows of blocks whose width a tuner may choose."""
    f = s.sample_choice("f", [2, 4])
    s["B"].transform_layout(lambda i, j: (i // f, j, i % f))


EXAMPLES: dict[str, Example] = {
    "no steps": (matmul, lambda s: None),
    "split": (chain, lambda s: s["C"].split("i", factor=8)),
    "split that divides": (chain, lambda s: s["C"].split("i", factor=5, tail="perfect")),
    "split peeled": (chain, lambda s: s["C"].split("i", factor=8, tail="peel")),
    "split in parts": (chain, lambda s: s["C"].split("i", nparts=3)),
    "split of any extent": (lambda: chain(n), lambda s: s["C"].split("i", factor=8)),
    "split of any extent peeled": (lambda: chain(n), lambda s: s["C"].split("i", factor=8, tail="peel")),
    "split of any extent in parts": (lambda: chain(n), lambda s: s["C"].split("i", nparts=4)),
    "split by more than the extent": (chain, lambda s: s["C"].split("i", factor=64)),
    "split twice": (chain, lambda s: s["C"].split("i", factor=8), lambda s: s["C"].split("i_i", factor=3)),
    "tile": (matmul, lambda s: s["C"].tile("i", "j", 4, 4)),
    "tile peeled": (matmul, lambda s: s["C"].tile("i", "j", 4, 4, tail="peel")),
    "tile of any extent peeled": (lambda: matmul(n, m, 8), lambda s: s["C"].tile("i", "j", 4, 4, tail="peel")),
    "fuse": (transposed, lambda s: s["C"].fuse("j", "i")),
    "fuse of any extent": (lambda: transposed(n), lambda s: s["C"].fuse("j", "i")),
    "fuse reduce axes": (plane_sum, lambda s: s["B"].fuse("k", "l")),
    "fuse of no axes": (
        whole_sum,
        lambda s: s["B"].compute_at(s["C"], s["C"].fuse()),
        lambda s: s["B"].split("k", 4),
        lambda s: s["B"].fuse(),
        lambda s: s["C"].unroll("fused"),
    ),
    "fuse and split": (transposed, lambda s: s["C"].split(s["C"].fuse("j", "i"), factor=7)),
    "reorder": (matmul, lambda s: s["C"].reorder("k", "i")),
    "reorder a reduction outwards": (row_sum, lambda s: s["B"].reorder("k", "i")),
    "skew": (transposed, lambda s: s["C"].skew("i", by="j", factor=2)),
    "affine": (transposed, lambda s: s["C"].affine(["j", "i"], [[1, 1], [1, 0]])),
    "tile_by": (transposed, lambda s: s["C"].tile_by(["j", "i"], [[1, 1], [1, -1]], [4, 4])),
    "skew back and outwards": (
        transposed,
        lambda s: s["C"].skew("i", by="j", factor=-1),
        lambda s: s["C"].reorder("i_s", "j"),
    ),
    "shift": (chain, lambda s: s["C"].shift("i", 3)),
    "reverse": (chain, lambda s: s["C"].reverse("i")),
    "fuse_with": (chain, lambda s: s["C"].fuse_with("i", stage="B")),
    "fission": (chain, lambda s: s["C"].fuse_with("i", stage="B"), lambda s: s["C"].fission("i_fused")),
    "peel": (lambda: chain(n), lambda s: s["C"].peel("i", first=1, last=2)),
    "partition": (lambda: chain(n), lambda s: s["C"].partition("i", [n // 2])),
    "decompose_reduction": (matmul, lambda s: s["C"].decompose_reduction("i")),
    "vectorize": (chain, lambda s: s["C"].split("i", factor=4), lambda s: s["C"].vectorize("i_i")),
    "vectorize a tail": (chain, lambda s: s["C"].split("i", factor=8), lambda s: s["C"].vectorize("i_i")),
    "unroll": (chain, lambda s: s["C"].split("i", factor=4), lambda s: s["C"].unroll("i_i")),
    "parallel": (matmul, lambda s: s["C"].parallel("i")),
    "bind": (
        chain,
        lambda s: s["C"].split("i", factor=8),
        lambda s: s["C"].bind("i_o", "blockIdx.x"),
        lambda s: s["C"].bind("i_i", "threadIdx.x"),
    ),
    "env_threads and bind": (
        scanned,
        lambda s: s["S"].env_threads(["threadIdx.x"]),
        lambda s: s["init"].bind("i", "threadIdx.x"),
        lambda s: s["update"].bind("i", "threadIdx.x"),
    ),
    "compute_at": (stencil, lambda s: s["C"].split("i", factor=6), lambda s: s["B"].compute_at(s["C"], "i_o")),
    "compute_at a tile of any extent": (
        lambda: transposed(n),
        lambda s: s["C"].tile("j", "i", 4, 4),
        lambda s: s["B"].compute_at(s["C"], "i_o"),
    ),
    "compute_at with a halo of padding": (
        padded,
        lambda s: s["C"].split("i", factor=4),
        lambda s: s["B"].compute_at(s["C"], "i_o"),
    ),
    "compute_at a chain": (
        padded,
        lambda s: s.cache_read("B", "local", ["C"]),
        lambda s: s["C"].split("i", factor=4),
        lambda s: s["B.local"].compute_at(s["C"], "i_o"),
        lambda s: s["B"].compute_at(s["B.local"], "ax0"),
    ),
    "compute_root": (stencil, lambda s: s["B"].compute_at(s["C"], "i"), lambda s: s["B"].compute_root()),
    "compute_inline": (padded, lambda s: s["B"].compute_inline()),
    "compute_inline in a scan": (scanned, lambda s: s["double"].compute_inline()),
    "set_scope": (chain, lambda s: s["B"].compute_at(s["C"], "i"), lambda s: s["B"].set_scope("local")),
    "cache_read": (matmul, lambda s: s.cache_read("A", "local", ["C"]), lambda s: s["A.local"].compute_at(s["C"], "i")),
    "cache_read for one of two": (two_consumers, lambda s: s.cache_read("B", "global", ["D"])),
    "cache_write": (
        matmul,
        lambda s: s.cache_write("C", "local"),
        lambda s: s["C"].tile("i", "j", 4, 4),
        lambda s: s["C.local"].compute_at(s["C"], "j_o"),
    ),
    "cache_write of pairs": (
        argmax,
        lambda s: s.cache_write("T", "local"),
        lambda s: s["T.local"].compute_at(s["T"], "i"),
    ),
    "tensorize": (
        matmul,
        lambda s: s["C"].tile("i", "j", 2, 4, tail="peel"),
        lambda s: s["C"].reorder("i_o", "j_o", "i_i", "j_i", "k"),
        lambda s: s["C"].tensorize("i_i", tile_matmul(2, 4, 8)),
    ),
    "rfactor": (row_sum, lambda s: s["B"].split("k", factor=4), lambda s: s.rfactor("B", "k_i")),
    "rfactor with a tail": (
        row_sum,
        lambda s: s["B"].split("k", factor=8),
        lambda s: s.rfactor("B", "k_i", 1),
        lambda s: s["B.rf"].vectorize("k_i"),
    ),
    "rfactor of any extent": (
        lambda: row_sum(n, m),
        lambda s: s["B"].split("k", factor=4),
        lambda s: s.rfactor("B", "k_i", 1),
        lambda s: s["B.rf"].parallel("i"),
    ),
    "rfactor of blocks of any extent": (
        lambda: row_sum(n, m),
        lambda s: s["B"].split("k", nparts=4),
        lambda s: s.rfactor("B", "k_o"),
        lambda s: s["B.rf"].parallel("k_o"),
    ),
    "rfactor of pairs": (argmax, lambda s: s["T"].split("k", factor=4), lambda s: s.rfactor("T", "k_i")),
    "rfactor of everything": (row_sum, lambda s: s.rfactor("B", "k")),
    "transform_layout": (transposed, lambda s: s["B"].transform_layout(lambda i, j: (j, i // 4, i % 4))),
    "transform_layout of any extent": (
        lambda: transposed(n),
        lambda s: s["B"].transform_layout(lambda i, j: (j // 4, n - 1 - i, j % 4)),
    ),
    "sample_choice": (chain, lambda s: s["C"].split("i", s.sample_choice("factor", [2, 4, 8], decision=4))),
    "sample_choice in a layout": (
        transposed,
        sampled_layout,
    ),
    "assume": (gathered, lambda s: s.assume("range", "idx", -8, 8), lambda s: s["C"].parallel("i")),
    "strict": (row_sum, lambda s: s.strict(), lambda s: s["B"].split("k", factor=8)),
    "around an extern stage": (with_extern, lambda s: s["B"].split("i", factor=5), lambda s: s["C"].vectorize("i")),
    "pragma": (
        lambda: chain(n),
        lambda s: s["C"].split("i", factor=4),
        lambda s: s["C"].pragma("i_o", "loop_partition_hint"),
        lambda s: s["C"].pragma("i_i", "auto_unroll_max_step", 4),
    ),
    "prefetch": (matmul, lambda s: s["C"].reorder("i", "k", "j"), lambda s: s["C"].prefetch("B", "k", 2)),
    "set_store_predicate": (
        lambda: transposed(n),
        lambda s: s["B"].split("i", factor=4),
        lambda s: s["B"].set_store_predicate("i < n and not i_i > 3"),
    ),
    "reverse_compute_at": (
        lambda: matmul_and_relu(n, m),
        lambda s: s["C"].tile("i", "j", 4, 8),
        lambda s: s["D"].reverse_compute_at(s["C"], "j_o"),
        lambda s: s["C"].parallel("i_o"),
    ),
    "reverse_compute_at of a window": (
        stencil,
        lambda s: s["B"].split("i", factor=6),
        lambda s: s["C"].reverse_compute_at(s["B"], "i_o"),
    ),
    "atomic": (
        row_sum,
        lambda s: s["B"].atomic(),
        lambda s: s["B"].reorder("k", "i"),
        lambda s: s["B"].parallel("k"),
    ),
    "packed": (lambda: matmul(6, 14, 8), packed),
}


def scheduled(name: str) -> Case:
    """The program of an example under its steps."""
    make, *steps = EXAMPLES[name]
    case = make()
    assert isinstance(case, Case)
    for step in steps:
        step(case.s)
    return case


def sizes_of(case: Case, values: tuple[int, ...]) -> dict[str, int]:
    return {v.name: value for v, value in zip(case.s.original.sizes, values)}


@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str, golden: Callable[[str], None]) -> None:
    case = scheduled(name)
    golden(f"{case.s}\n{lower(case.s, case.args)}")
    targets = ("interpreter",) if "bind" in name else ("interpreter", "llvm")
    for values in ((5, 7), (16, 8), (3, 1)) if case.s.original.sizes else ((),):
        check_schedule(case.s, case.args, sizes_of(case, values), targets)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("values", [(0, 5), (5, 0), (0, 0), (1, 1), (2, 3)])
@pytest.mark.parametrize("name", [name for name in EXAMPLES if scheduled(name).s.original.sizes])
def test_no_elements_and_fewer_than_a_tile(name: str, values: tuple[int, int]) -> None:
    case = scheduled(name)
    check_schedule(case.s, case.args, sizes_of(case, values))
