"""One small use of every step of a schedule, and one that the proof refuses: the rows of docs/primitives.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tensorlang import te, topi
from tensorlang.errors import BadArgument, IllegalOrder, IllegalParallel, OverwrittenValue, ScheduleError, UncoveredRead
from tests.programs import Case, argmax, chain, matmul, row_sum, stencil, two_consumers

BOTH = ("interpreter", "llvm")
INTERPRETED = ("interpreter",)  # threads of a GPU


def narrow(dtype: str) -> Case:
    """A product of bytes, or of other numbers, in 32 bits."""
    A, B = te.placeholder((5, 6), dtype, "A"), te.placeholder((6, 7), dtype, "B")
    C = topi.matmul(A, B, out_dtype="int32")
    return Case(te.create_schedule(C.op), (A, B, C))


def convolution() -> Case:
    """Windows of two by two over an image, padded at the end."""
    D, W = te.placeholder((1, 3, 3, 2), "int8", "D"), te.placeholder((2, 2, 2, 4), "int8", "W")
    C = topi.conv2d(D, W, padding=(0, 0, 1, 1), data_layout="NHWC", out_dtype="int32", name="C")
    return Case(te.create_schedule(C.op), (D, W, C))


def attended() -> Case:
    """What three queries see of five keys."""
    q, k, v = te.placeholder((3, 2), name="q"), te.placeholder((5, 2), name="k"), te.placeholder((5, 4), name="v")
    C = topi.attention(q, k, v, name="C")
    return Case(te.create_schedule(C.op), (q, k, v, C))


def running(strict: bool = False) -> Case:
    """Sums of the elements of two rows up to each, from right to left in the text."""
    A = te.placeholder((2, 11), name="A")
    C = te.recurrence(
        (2, 11), lambda self, r, i: te.if_then_else(i == 0, A[r, 0], A[r, i] * 2 + self[r, i - 1]), name="C"
    )
    return Case(te.create_schedule(C.op, strict=strict), (A, C))


@te.hybrid.script
def sweep(A: Any) -> Any:
    """Three steps of a stencil over one row, in place."""
    for t in range(3):  # noqa: B007
        for i in range(1, 9):
            A[i] = A[i - 1] + A[i + 1]
    return A


@te.hybrid.script
def mirrored(size: Any, A: Any) -> Any:
    """Every step reads the row from its other end."""
    for t in range(3):  # noqa: B007
        for i in range(size):
            A[i] = A[i] + A[size - 1 - i]
    return A


@te.hybrid.script
def two_loops(A: Any) -> Any:
    """A stencil over one row, by way of a second."""
    B = te.output_tensor((10,), "int32")
    C = te.output_tensor((10,), "int32")
    for i in range(10):
        B[i] = A[i] + 1
        C[9 - i] = 0
    for j in range(1, 10):
        C[j] += B[j] * B[j - 1]
    return B, C


@te.hybrid.script
def prefix(A: Any) -> Any:
    """Sums of all elements so far, and their squares."""
    B = te.output_tensor((10,), "int32")
    C = te.output_tensor((10,), "int32")
    for i in range(10):
        B[i] = A[i]
        if i > 0:
            B[i] += C[i - 1]
        C[i] = B[i] * 2
    return B, C


@te.hybrid.script
def smoothed(A: Any) -> Any:
    """Sums of two elements of a local array, two apart."""
    out = te.output_tensor((30,), "int32")
    row = te.allocate((32,), "int32")
    for i in range(32):
        row[i] = A[i] * 2
        if i >= 2:
            out[i - 2] = row[i] + row[i - 2]
    return out


@te.hybrid.script
def scattered(A: Any, where: Any) -> Any:
    """Elements stored at the places that another array names."""
    out = te.output_tensor((8,), "int32")
    for i in range(8):
        out[where[i]] = A[i]
    return out


def scripted(script: Callable[..., Any], *extents: int) -> Case:
    """A script over one row of integers, or several."""
    rows = [te.placeholder((extent,), "int32", name="AXY"[k]) for k, extent in enumerate(extents)]
    made = script(*rows)
    outputs = list(made) if isinstance(made, list | tuple) else [made]
    new = [tensor for tensor, update in zip(outputs, outputs[0].op.updates, strict=True) if update is None]
    return Case(te.create_schedule(outputs[0].op), (*rows, *new))


def reflection() -> Case:
    """A row of any extent, every step of which reads it from its other end."""
    size = te.var("n")
    A = te.placeholder((size,), "int32", name="A")
    return Case(te.create_schedule(mirrored(size, A).op), (A,))


def scatter() -> Case:
    """Elements stored at the places that another array names."""
    A, where = te.placeholder((8,), "int32", name="A"), te.placeholder((8,), "int32", name="where")
    out = scattered(A, where)
    return Case(te.create_schedule(out.op), (A, where, out))


def scan() -> Case:
    """Sums over time of every column."""
    X, state = te.placeholder((5, 8), "int32", name="X"), te.placeholder((5, 8), "int32", name="state")
    init = te.compute((1, 8), lambda t, i: X[t, i], name="init")
    update = te.compute((5, 8), lambda t, i: state[t - 1, i] + X[t, i], name="update")
    S = te.scan(init, update, state, name="S")
    return Case(te.create_schedule(S.op), (X, S))


def every_second() -> Case:
    """B = A + 1, of which C reads every second element."""
    A = te.placeholder((16,), name="A")
    B = te.compute((16,), lambda i: A[i] + 1, name="B")
    C = te.compute((8,), lambda i: B[2 * i], name="C")
    return Case(te.create_schedule(C.op), (A, C))


def activated() -> Case:
    """D = max(C, 0), C = A B."""
    A, B = te.placeholder((8, 6), name="A"), te.placeholder((6, 8), name="B")
    k = te.reduce_axis((0, 6), "k")
    C = te.compute((8, 8), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    D = te.compute((8, 8), lambda i, j: te.maximum(C[i, j], 0.0), name="D")
    return Case(te.create_schedule(D.op), (A, B, D))


def halves(m: int = 6, n: int = 10) -> Case:
    """B = A / 2; C = B + 1, in two dimensions."""
    A = te.placeholder((m, n), name="A")
    B = te.compute((m, n), lambda i, j: A[i, j] * 0.5, name="B")
    C = te.compute((m, n), lambda i, j: B[i, j] + 1, name="C")
    return Case(te.create_schedule(C.op), (A, C))


Program = Callable[[], Case]


@dataclass(frozen=True)
class Refused:
    """Statements on a schedule `s` of a program, the last of which is refused: by the proof, or as a bad argument."""

    program: Program
    steps: str
    error: type[ScheduleError]


@dataclass(frozen=True)
class Use:
    """A step in use: statements on a schedule `s`, and a use that is wrong.

    `recorded`: the steps that a composed one leaves in the trace. `inputs`: arrays that cannot be drawn at random.
    """

    program: Program
    steps: str
    refused: Refused
    targets: tuple[str, ...] = BOTH
    recorded: tuple[str, ...] = ()
    inputs: tuple[tuple[str, tuple[int, ...]], ...] = ()


PERMUTED = (("where", (3, 1, 4, 0, 5, 7, 2, 6)),)
ROW = partial(scripted, sweep, 10)
SPLIT = "i_o, i_i = s['C'].split('i', factor=6)\n"

TWO = partial(scripted, two_loops, 10)
ATTACHED = SPLIT + "s['B'].compute_at(s['C'], i_o)\n"

USES: dict[str, Use] = {
    "split": Use(
        chain,
        "s['C'].split('i', factor=8, tail='peel')",
        Refused(chain, "s['C'].split('i', factor=8, tail='perfect')", BadArgument),
    ),
    "fuse": Use(matmul, "s['C'].fuse('i', 'j')", Refused(matmul, "s['C'].fuse('i', 'k')", BadArgument)),
    "reorder": Use(matmul, "s['C'].reorder('k', 'j', 'i')", Refused(ROW, "s['sweep'].reorder('i', 't')", IllegalOrder)),
    "tile": Use(
        matmul,
        "s['C'].tile('i', 'j', 4, 4)",
        Refused(ROW, "s['sweep'].tile('t', 'i', 2, 4)", IllegalOrder),
        recorded=("split", "split", "reorder"),
    ),
    "skew": Use(
        ROW,
        "s['sweep'].skew('i', by='t')\ns['sweep'].reorder('i_s', 't')",
        Refused(ROW, "s['sweep'].skew('t', by='i')", BadArgument),
    ),
    "shift": Use(
        TWO,
        "s['two_loops'].shift('i', 5)",
        Refused(partial(scripted, prefix, 10), "s['prefix'].shift('i', 5, statement='S0')", IllegalOrder),
    ),
    "reverse": Use(chain, "s['C'].reverse('i')", Refused(ROW, "s['sweep'].reverse('i')", IllegalOrder)),
    "affine": Use(
        ROW,
        "s['sweep'].affine(['t', 'i'], [[1, 1], [1, 0]])",
        Refused(ROW, "s['sweep'].affine(['t', 'i'], [[0, 1], [1, 0]])", IllegalOrder),
    ),
    "tile_by": Use(
        ROW,
        "s['sweep'].tile_by(['t', 'i'], [[1, 0], [1, 1]], [2, 4])",
        Refused(ROW, "s['sweep'].tile_by(['t', 'i'], [[1, 0], [0, 1]], [2, 4])", IllegalOrder),
    ),
    "time_tile": Use(
        ROW,
        "s['sweep'].time_tile('t', ['i'], 2, [4])",
        Refused(reflection, "s['mirrored'].time_tile('t', ['i'], 2, [4])", IllegalOrder),
        recorded=("tile_by",),
    ),
    "wavefront": Use(
        ROW,
        "s['sweep'].wavefront('t', 'i')",
        Refused(reflection, "s['mirrored'].wavefront('t', 'i')", IllegalOrder),
        recorded=("skew", "reorder", "parallel"),
    ),
    "peel": Use(
        chain, "s['C'].peel('i', first=1, last=3)", Refused(chain, "s['C'].peel('i', first=15, last=15)", BadArgument)
    ),
    "partition": Use(
        chain, "s['C'].partition('i', [5, 12])", Refused(chain, "s['C'].partition('i', [12, 5])", BadArgument)
    ),
    "fission": Use(
        TWO,
        "s['two_loops'].fission('i')",
        Refused(partial(scripted, prefix, 10), "s['prefix'].fission('i')", IllegalOrder),
    ),
    "fuse_with": Use(
        chain, "s['C'].fuse_with('i', stage='B')", Refused(TWO, "s['two_loops'].fuse_with('i', 'j')", IllegalOrder)
    ),
    "vectorize": Use(
        chain,
        SPLIT + "s['C'].vectorize(i_i)",
        Refused(row_sum, "s['B'].vectorize('k')", IllegalParallel),
    ),
    "unroll": Use(
        chain, SPLIT + "s['C'].unroll(i_i)", Refused(partial(chain, te.var("n")), "s['C'].unroll('i')", BadArgument)
    ),
    "parallel": Use(matmul, "s['C'].parallel('i')", Refused(row_sum, "s['B'].parallel('k')", IllegalParallel)),
    "bind": Use(
        chain,
        "s['C'].bind('i', 'threadIdx.x')",
        Refused(row_sum, "s['B'].bind('k', 'blockIdx.x')", IllegalParallel),
        targets=INTERPRETED,
    ),
    "env_threads": Use(
        scan,
        "s['S'].env_threads(['threadIdx.x'])\ns['init'].bind('i', 'threadIdx.x')\ns['update'].bind('i', 'threadIdx.x')",
        Refused(scan, "s['S'].env_threads(['threadIdx.x'])\ns['update'].bind('t', 'threadIdx.x')", IllegalParallel),
        targets=INTERPRETED,
    ),
    "atomic": Use(
        partial(row_sum, dtype="int32"),
        "s['B'].atomic()\ns['B'].reorder('k', 'i')\ns['B'].parallel('k')",
        Refused(argmax, "s['T'].atomic()", BadArgument),
    ),
    "pragma": Use(
        chain,
        "s['C'].pragma('i', 'auto_unroll_max_step', 64)",
        Refused(chain, "s['C'].pragma('i', 'unroll_explicit', 7)", BadArgument),
    ),
    "prefetch": Use(chain, "s['B'].prefetch('A', 'i', 2)", Refused(chain, "s['B'].prefetch('C', 'i', 2)", BadArgument)),
    "tensorize": Use(
        partial(matmul, 4, 32, 6),
        "j_o, j_i = s['C'].split('j', factor=16)\n"
        "s['C'].reorder('i', j_o, 'k', j_i)\n"
        "s['C'].tensorize(j_i, te.intrin('fma.f32x16'))",
        Refused(partial(matmul, 4, 32, 6), "s['C'].tensorize('k', te.intrin('fma.f32x16'))", BadArgument),
    ),
    "compute_at": Use(
        stencil, ATTACHED.rstrip(), Refused(two_consumers, "s['B'].compute_at(s['C'], 'i')", UncoveredRead)
    ),
    "reverse_compute_at": Use(
        activated,
        "i_o, j_o, i_i, j_i = s['C'].tile('i', 'j', 4, 4)\ns['D'].reverse_compute_at(s['C'], j_o)",
        Refused(activated, "s['D'].reverse_compute_at(s['C'], 'k')", BadArgument),
    ),
    "compute_inline": Use(chain, "s['B'].compute_inline()", Refused(activated, "s['C'].compute_inline()", BadArgument)),
    "compute_root": Use(
        stencil,
        "s['B'].compute_at(s['C'], 'i')\ns['B'].compute_root()",
        Refused(stencil, "s['A'].compute_root()", BadArgument),
    ),
    "create_group": Use(
        activated,
        "s.create_group('C', 'A').compute_at(s['D'], 'i')",
        Refused(two_consumers, "s.create_group('B', 'A').compute_at(s['C'], 'i')", UncoveredRead),
        recorded=("compute_at",),
    ),
    "set_scope": Use(
        chain,
        "s['B'].compute_at(s['C'], 'i')\ns['B'].set_scope('local')",
        Refused(chain, "s['B'].set_scope('texture')", BadArgument),
    ),
    "cache_read": Use(
        matmul, "s.cache_read('B', 'global', ['C'])", Refused(matmul, "s.cache_read('B', 'global', ['A'])", BadArgument)
    ),
    "cache_write": Use(
        matmul,
        "s.cache_write('C', 'local')\ns['C.local'].compute_at(s['C'], 'i')",
        Refused(matmul, "s.cache_write('A', 'local')", BadArgument),
    ),
    "rolling_buffer": Use(
        stencil,
        "s['B'].compute_at(s['C'], 'i')\ns['B'].rolling_buffer()",
        Refused(
            stencil,
            "s['B'].compute_at(s['C'], 'i')\ns['B'].rolling_buffer()\ns['C'].parallel('i')",
            IllegalParallel,
        ),
    ),
    "pipeline": Use(
        stencil,
        ATTACHED + "s['B'].pipeline(3)",
        Refused(stencil, ATTACHED + "s['B'].pipeline(1)", BadArgument),
    ),
    "double_buffer": Use(
        stencil,
        ATTACHED + "s['B'].double_buffer()",
        Refused(stencil, ATTACHED + "s['B'].double_buffer()\ns['C'].parallel(i_o)", IllegalParallel),
    ),
    "fold_storage": Use(
        partial(scripted, smoothed, 32),
        "s['smoothed'].fold_storage('row', 0)",
        Refused(partial(scripted, smoothed, 32), "s['smoothed'].fold_storage('row', 0, 2)", OverwrittenValue),
    ),
    "storage_align": Use(
        halves, "s['B'].storage_align('i', 8, 4)", Refused(halves, "s['C'].storage_align('i', 8, 4)", BadArgument)
    ),
    "swizzle": Use(partial(halves, 8, 32), "s['B'].swizzle()", Refused(halves, "s['B'].swizzle()", BadArgument)),
    "bulk_copy": Use(
        partial(matmul, 8, 12, 32),
        "s.cache_read('A', 'shared', ['C'])\n"
        "k_o, k_i = s['C'].split('k', factor=8)\n"
        "s['C'].reorder(k_o, 'i', 'j', k_i)\n"
        "s['A.shared'].compute_at(s['C'], k_o)\n"
        "s['A.shared'].pipeline(3)\n"
        "s['A.shared'].bulk_copy()",
        Refused(partial(matmul, 8, 12, 32), "s['C'].bulk_copy()", BadArgument),
    ),
    "set_store_predicate": Use(
        every_second,
        "s['B'].set_store_predicate('i % 2 == 0')",
        Refused(every_second, "s['B'].set_store_predicate('i % 4 == 0')", UncoveredRead),
    ),
    "cache_inplace": Use(
        ROW,
        "s['sweep'].cache_inplace(lambda i: (i // 4, i % 4))",
        Refused(ROW, "s['sweep'].cache_inplace(lambda i: (i // 4,))", BadArgument),
    ),
    "transform_layout": Use(
        halves,
        "s['B'].transform_layout(lambda i, j: (j // 5, i, j % 5))",
        Refused(halves, "s['B'].transform_layout(lambda i, j: (i,))", BadArgument),
    ),
    "pad": Use(
        halves,
        "s['B'].pad('j', 4)\nj_o, j_i = s['C'].split('j', factor=4)\ns['B'].compute_at(s['C'], j_o)",
        Refused(halves, "s['C'].pad('j', 4)", BadArgument),
    ),
    "narrow_product": Use(
        partial(narrow, "int8"),
        "s['C'].narrow_product(width=4, data='uint8')",
        Refused(partial(narrow, "int16"), "s['C'].narrow_product(width=4, data='int16')", BadArgument),
    ),
    "windows_product": Use(
        convolution,
        "s['C'].windows_product(['nn', 'yy', 'xx'], ['ry', 'rx', 'rc'])",
        Refused(convolution, "s['C'].windows_product(['nn', 'yy'], ['ry', 'rx', 'rc'])", BadArgument),
    ),
    "blocked_attention": Use(
        attended,
        "s['C'].blocked_attention(keys=4, rows=2)",
        Refused(matmul, "s['C'].blocked_attention(keys=4, rows=2)", BadArgument),
    ),
    "running_pieces": Use(
        running,
        "s['C'].running_pieces('i', size=4)\ns['C'].parallel('i_piece')",
        Refused(running, "s['C'].running_pieces('r', size=4)", BadArgument),
    ),
    "rfactor": Use(
        row_sum,
        "k_o, k_i = s['B'].split('k', factor=4)\ns.rfactor('B', k_i)",
        Refused(row_sum, "s.rfactor('B', 'i')", BadArgument),
    ),
    "decompose_reduction": Use(
        matmul,
        "s['C'].decompose_reduction('i')",
        Refused(matmul, "s['C'].reorder('k', 'i', 'j')\ns['C'].decompose_reduction('i')", BadArgument),
    ),
    "sample_choice": Use(
        chain,
        "f = s.sample_choice('f', [2, 4, 8], decision=4)\ns['C'].split('i', f)",
        Refused(chain, "s.sample_choice('f', [2, 4, 8], decision=3)", BadArgument),
    ),
    "sample_perfect_tile": Use(
        chain,
        "f, = s.sample_perfect_tile('f', 20, 2)\ns['C'].split('i', f)",
        Refused(chain, "s.sample_perfect_tile('f', 20, 2, decision=[3])", BadArgument),
        recorded=("sample_choice",),
    ),
    "assume": Use(
        scatter,
        "s.assume('injective', 'where')\ns['scattered'].parallel('i')",
        Refused(scatter, "s['scattered'].parallel('i')", IllegalParallel),
        inputs=PERMUTED,
    ),
    "strict": Use(
        row_sum,
        "s.strict()\ns['B'].split('k', 4)",
        Refused(row_sum, "s['B'].reverse('k')\ns.strict()", IllegalOrder),
    ),
    "auto_order": Use(
        ROW,
        "s.auto_order(parallel=True)",
        Refused(ROW, "s.auto_order()\ns['sweep'].reverse('t')", IllegalOrder),
        recorded=("skew", "skew", "reorder", "parallel"),
    ),
}
"""Name of the method -> a use of it. Every primitive, and every method that is composed of primitives, has a row."""
