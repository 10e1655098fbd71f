"""Programs with a step that is refused, and how the first repair begins: for the tests of repairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorlang import te
from tensorlang.schedule import Schedule

n, steps = te.var("n"), te.var("steps")
Step = Callable[[Schedule], object]


@te.hybrid.script
def seidel(A):  # type: ignore[no-untyped-def]
    for t in range(4):
        for i in range(1, A.shape[0] - 1):
            for j in range(1, A.shape[1] - 1):
                A[i, j] = A[i - 1, j - 1] + A[i - 1, j + 1] - A[i, j] + A[i, j + 1] - A[i + 1, j] + t
    return A


@te.hybrid.script
def pipeline(A, B):  # type: ignore[no-untyped-def]
    for i in range(A.shape[0]):
        A[i] = A[i] * 3
    for j in range(A.shape[0] - 2):
        B[j] = A[j] + A[j + 2]
    return A, B


@te.hybrid.script
def carried(A, B):  # type: ignore[no-untyped-def]
    for i in range(1, A.shape[0]):
        A[i] = B[i - 1] + 1
        B[i] = A[i] * 2
        A[i] = A[i] - B[i]
    return A, B


@te.hybrid.script
def prefix(A):  # type: ignore[no-untyped-def]
    for i in range(1, A.shape[0]):
        A[i] = A[i - 1] - A[i]
    return A


@te.hybrid.script
def wave(A):  # type: ignore[no-untyped-def]
    for i in range(1, A.shape[0]):
        for j in range(1, A.shape[1]):
            A[i, j] = A[i - 1, j] + A[i, j - 1]
    return A


@te.hybrid.script
def jacobi(A, B, steps):  # type: ignore[no-untyped-def]
    for t in range(steps):  # noqa: B007
        for i in range(1, A.shape[0] - 1):
            for j in range(1, A.shape[1] - 1):
                B[i, j] = A[i - 1, j] + A[i, j - 1] + A[i, j] + A[i, j + 1] - A[i + 1, j]
        for i in range(1, A.shape[0] - 1):
            for j in range(1, A.shape[1] - 1):
                A[i, j] = B[i - 1, j] + B[i, j - 1] + B[i, j] + B[i, j + 1] - B[i + 1, j]
    return A, B


@te.hybrid.script
def line(A, B, steps):  # type: ignore[no-untyped-def]
    for t in range(steps):  # noqa: B007
        for i in range(1, A.shape[0] - 1):
            B[i] = A[i - 1] + A[i] - A[i + 1]
        for i in range(1, A.shape[0] - 1):
            A[i] = B[i - 1] + B[i] - B[i + 1]
    return A, B


@te.hybrid.script
def heat(A, B):  # type: ignore[no-untyped-def]
    for t in range(5):  # noqa: B007
        for i in range(1, A.shape[0] - 1):
            for j in range(1, A.shape[1] - 1):
                for k in range(1, A.shape[2] - 1):
                    B[i, j, k] = A[i - 1, j, k] + A[i + 1, j, k] - A[i, j, k - 1] - A[i, j, k + 1] + A[i, j - 1, k]
        for i in range(1, A.shape[0] - 1):
            for j in range(1, A.shape[1] - 1):
                for k in range(1, A.shape[2] - 1):
                    A[i, j, k] = B[i - 1, j, k] + B[i + 1, j, k] - B[i, j, k - 1] - B[i, j + 1, k] + B[i, j, k]
    return A, B


@te.hybrid.script
def turned(A, B, C):  # type: ignore[no-untyped-def]
    for i in range(A.shape[0]):
        B[i] = A[i] * 3
    for j in range(A.shape[0]):
        C[j] = B[A.shape[0] - 1 - j] + 1
    return B, C


@te.hybrid.script
def added(A, B):  # type: ignore[no-untyped-def]
    for t in range(1, A.shape[0]):
        for i in range(1, A.shape[1] - 1):
            A[t, i] = A[t - 1, i - 1] + A[t - 1, i + 1] + B[t, i]
    return A


def recurrence(X: te.Tensor) -> te.Tensor:
    def step(C: Any, t: te.Var, i: te.Var) -> Any:
        return te.if_then_else(
            te.all(t > 0, i > 0, i < n - 1), C[t - 1, i - 1] + C[t - 1, i] - C[t - 1, i + 1], X[t, i]
        )

    made: te.Tensor = te.recurrence((n, n), step, name="C")
    return made


def sums(A: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, 12), "k")
    made: te.Tensor = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="C")
    return made


def plane() -> te.Tensor:
    return te.placeholder((n, n), "int32", name="A")


def arrays(rank: int, count: int, *more: te.Var) -> Callable[[], tuple[Any, ...]]:
    def make() -> tuple[Any, ...]:
        return (*(te.placeholder((n,) * rank, "int32", name=name) for name in "ABC"[:count]), *more)

    return make


def lines() -> tuple[te.Tensor, te.Tensor]:
    return te.placeholder((n,), "int32", name="A"), te.placeholder((n,), "int32", name="B")


def tiled(s: Schedule) -> None:
    s["seidel"].split("i", factor=2)
    s["seidel"].split("j", factor=2)


def fused(stage: str, axes: str) -> Step:
    """Both statements of a stencil in one nest."""

    def step(s: Schedule) -> None:
        for axis in axes:
            s[stage].fuse_with(axis, s[stage].shift(f"{axis}_1", 1))

    return step


def split(stage: str, *sizes: int) -> Step:
    """All loops of a nest in two."""

    def step(s: Schedule) -> None:
        for axis, size in zip(s[stage].leaf_iter_vars, sizes, strict=True):
            s[stage].split(axis, size)

    return step


def tiles_outside(stage: str) -> Step:
    """Rectangular tiles, time included."""

    def step(s: Schedule) -> None:
        loops = list(s[stage].leaf_iter_vars)
        s[stage].reorder(*loops[::2], *loops[1::2])

    return step


def skewed(s: Schedule) -> None:
    s["seidel"].skew("j", by="t", factor=2)
    s["seidel"].skew("j_s", by="i", factor=1)
    s["seidel"].skew("i", by="t", factor=1)


def split_time_first(s: Schedule) -> None:
    s["line"].split("t", 3)
    fused("line", "i")(s)
    s["line"].split("i_fused", 4)


START = "s = te.create_schedule(outputs); "


CASES: dict[str, tuple[Any, Callable[[], Any], tuple[Step, ...], Step, str]] = {
    "an order": (
        seidel,
        plane,
        (),
        lambda s: s["seidel"].reorder("j", "i"),
        "s['seidel'].skew('j', by='i', factor=1); s['seidel'].reorder('j_s', 'i')",
    ),
    "another order": (
        wave,
        plane,
        (lambda s: s["wave"].split("i", factor=2), lambda s: s["wave"].split("j", factor=3)),
        lambda s: s["wave"].reorder("j_i", "j_o", "i_o", "i_i"),
        "s['wave'].reorder('j_o', 'j_i', 'i_o', 'i_i')",
    ),
    "two skews": (
        seidel,
        plane,
        (),
        lambda s: s["seidel"].reorder("j", "i", "t"),
        "s['seidel'].skew('j', by='t', factor=2); s['seidel'].skew('j_s', by='i', factor=1); "
        "s['seidel'].skew('i', by='t', factor=1); s['seidel'].reorder('j_s_s', 'i_s', 't')",
    ),
    "tiles": (
        seidel,
        plane,
        (tiled,),
        lambda s: s["seidel"].reorder("i_o", "j_o", "t", "i_i", "j_i"),
        f"{START}s['seidel'].skew('j', by='t', factor=2); ",
    ),
    "tiles of seidel": (
        seidel,
        plane,
        (split("seidel", 2, 3, 4),),
        tiles_outside("seidel"),
        f"{START}s['seidel'].skew('j', by='t', factor=2); s['seidel'].skew('j_s', by='i', factor=1); "
        "s['seidel'].skew('i', by='t', factor=1); s['seidel'].split('t', factor=2); "
        "s['seidel'].split('i_s', factor=3); s['seidel'].split('j_s_s', factor=4); "
        "s['seidel'].reorder('t_o', 'i_s_o', 'j_s_s_o', 't_i', 'i_s_i', 'j_s_s_i')",
    ),
    "tiles of jacobi": (
        jacobi,
        arrays(2, 2, steps),
        (fused("jacobi", "ij"), split("jacobi", 4, 8, 8)),
        tiles_outside("jacobi"),
        f"{START}s['jacobi'].shift('i_1', 1); s['jacobi'].fuse_with('i', 'i_1_s'); s['jacobi'].shift('j_1', 1); "
        "s['jacobi'].fuse_with('j', 'j_1_s'); s['jacobi'].skew('j_fused', by='t', factor=2); "
        "s['jacobi'].skew('i_fused', by='t', factor=2); s['jacobi'].split('t', factor=4)",
    ),
    "tiles of a line": (
        line,
        arrays(1, 2, steps),
        (fused("line", "i"), split("line", 3, 4)),
        tiles_outside("line"),
        f"{START}s['line'].shift('i_1', 1); s['line'].fuse_with('i', 'i_1_s'); "
        "s['line'].skew('i_fused', by='t', factor=2)",
    ),
    "time that was split first": (
        line,
        arrays(1, 2, steps),
        (split_time_first,),
        tiles_outside("line"),
        f"{START}s['line'].shift('i_1', 1); s['line'].fuse_with('i', 'i_1_s'); "
        "s['line'].skew('i_fused', by='t', factor=2)",
    ),
    "tiles of heat": (
        heat,
        arrays(3, 2),
        (fused("heat", "ijk"), split("heat", 2, 4, 4, 4)),
        tiles_outside("heat"),
        f"{START}s['heat'].shift('i_1', 1); s['heat'].fuse_with('i', 'i_1_s')",
    ),
    "tiles of a recurrence": (
        recurrence,
        plane,
        (split("C", 2, 4),),
        tiles_outside("C"),
        f"{START}s['C'].skew('i', by='t', factor=1); s['C'].split('t', factor=2); s['C'].split('i_s', factor=4)",
    ),
    "threads of tiles": (
        seidel,
        plane,
        (skewed, split("seidel", 2, 3, 4), tiles_outside("seidel")),
        lambda s: s["seidel"].parallel("t_o"),
        "s['seidel'].skew('i_s_o', by='t_o', factor=1); s['seidel'].reorder('i_s_o_s', 't_o'); ",
    ),
    "threads of tiles by hyperplanes": (
        seidel,
        plane,
        (lambda s: s["seidel"].time_tile("t", ["i", "j"], 2, [3, 4]),),
        lambda s: s["seidel"].parallel("i_tile"),
        "s['seidel'].skew('i_tile', by='t_tile', factor=1); s['seidel'].reorder('i_tile_s', 't_tile'); ",
    ),
    "a sum in threads": (
        sums,
        lambda: te.placeholder((n, 12), "int32", name="A"),
        (),
        lambda s: s["C"].parallel("k"),
        "s['C'].parallel('i')",
    ),
    "a fusion with a turned loop": (
        turned,
        arrays(1, 3),
        (),
        lambda s: s["turned"].fuse_with("i", "j"),
        "s['turned'].reverse('j'); s['turned'].fuse_with('i', 'j_r')",
    ),
    "tiles by hyperplanes": (
        seidel,
        plane,
        (),
        lambda s: s["seidel"].tile_by(["t", "i", "j"], [[1, 0, 0], [0, 1, 0], [0, 0, 1]], [2, 2, 2]),
        "s['seidel'].tile_by(",
    ),
    "a fusion": (
        pipeline,
        lines,
        (),
        lambda s: s["pipeline"].fuse_with("i", "j"),
        "s['pipeline'].shift('j', 2); s['pipeline'].fuse_with('i', 'j_s')",
    ),
    "a fission": (
        carried,
        lines,
        (),
        lambda s: s["carried"].fission("i", "S0"),
        "s['carried'].fission('i', after='S1')",
    ),
    "threads": (
        wave,
        plane,
        (),
        lambda s: s["wave"].parallel("j"),
        "s['wave'].skew('j', by='i', factor=1); s['wave'].reorder('j_s', 'i'); s['wave'].parallel('i')",
    ),
}
