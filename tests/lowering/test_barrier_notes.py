"""Every barrier says which two threads it keeps apart, and where they meet."""

from __future__ import annotations

from tensorlang import lower, te
from tensorlang.schedule import Schedule


def staged(extent: te.Expr | int = 64) -> tuple[Schedule, list[te.Tensor]]:
    """Every thread reads what another one has copied."""
    a = te.placeholder((extent,), name="A")
    c = te.compute((extent,), lambda i: a[extent - 1 - i] * 2, name="C")
    s = te.create_schedule(c.op)
    copy = s.cache_read(a, "shared", [c])
    block, rest = s[c].split("i", factor=32)
    i_o, i_i = s[c].split(rest, factor=8)
    s[c].bind(block, "blockIdx.x")
    s[c].bind(i_i, "threadIdx.x")
    s[copy].compute_at(s[c], i_o)
    s[copy].bind("ax0", "threadIdx.x")
    return s, [a, c]


def test_each_barrier_has_two_threads_and_a_cell() -> None:
    s, args = staged()
    notes = lower(s, args, target="cuda").barriers
    assert [(n.loops, n.before, n.carried) for n in notes] == [
        (("C.i_i_o",), "A.shared", "C.i_i_o"),
        (("C.i_i_o",), "C", ""),
    ]
    assert str(notes[1]) == (
        "barrier in C.i_i_o, before C: thread (0, 0, 0) writes A.shared[0]; thread (7, 0, 0) reads A.shared[0]"
    )
    assert "reads A.shared[7]; thread (7, 0, 0) writes A.shared[7], in a later iteration of C.i_i_o" in str(notes[0])


def test_a_pipeline_needs_one() -> None:
    s, args = staged()
    s["A.shared"].pipeline(3)
    (note,) = lower(s, args, target="cuda").barriers
    assert note.before == "A.shared" and note.carried == "C.i_i_o"


def test_sizes_of_the_example_are_told() -> None:
    s, args = staged(te.var("n"))
    notes = lower(s, args, target="cuda").barriers
    assert len(notes) == 2 and all(n.sizes and n.sizes[0][0] == "n" for n in notes)


def test_threads_that_share_nothing_wait_for_nobody() -> None:
    a = te.placeholder((64,), name="A")
    c = te.compute((64,), lambda i: a[i] * 2, name="C")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split("i", factor=32)
    s[c].bind(outer, "blockIdx.x")
    s[c].bind(inner, "threadIdx.x")
    assert lower(s, [a, c], target="cuda").barriers == ()
