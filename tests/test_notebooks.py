"""What notebooks show of objects: markup that is whole, holds what is there, and no markup of strangers."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import tensorlang
from tensorlang import autotune, te, topi
from tensorlang.autotune.result import Result
from tensorlang.profiling import Machine
from tensorlang.runtime.page import hot_loop
from tensorlang.target.detect import host_cpu
from tensorlang.target.rates import Rates

A, B = te.placeholder((64, 48), name="A"), te.placeholder((48, 32), name="B")
k = te.reduce_axis((0, 48), "k")
C = te.compute((64, 32), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
D = te.compute((64, 32), lambda i, j: te.select(C[i, j] < 1, C[i, j], te.exp(C[i, j])), name="D")


def shown(thing: Any) -> tuple[ElementTree.Element, str]:
    """The markup, read, and all text in it."""
    root = ElementTree.fromstring(thing._repr_html_())
    text = " ".join(root.itertext())
    assert "\\u" not in text and "\\x" not in text  # no character of ours is one that pages may not show
    return root, text


def rows(root: ElementTree.Element) -> list[list[str]]:
    return [["".join(cell.itertext()) for cell in row] for row in root.iter("tr")]


def test_tensors() -> None:
    root, text = shown(C)
    assert "Tensor C" in text and "sum(A[i, k] * B[k, j]; k in [0, 48))" in text
    assert ["shape", "64, 32"] in rows(root) and ["reads", "A[64, 48], B[48, 32]"] in rows(root)
    assert any(row[1].startswith("an input, declared at test_notebooks.py:") for row in rows(shown(A)[0]))


def test_programs() -> None:
    root, _ = shown(te.create_schedule(D.op).program)
    found = {row[0]: row for row in rows(root)[1:]}
    assert list(found) == ["A", "B", "C", "D"]
    assert found["D"][1] == "output" and found["A"][1] == "input" and found["C"][4] == "A, B"
    assert "<" in found["D"][5], "an operator is no markup"


def test_schedules() -> None:
    s = te.create_schedule(D.op)
    s[C].tile("i", "j", 16, 8)
    s[C].parallel("i_o")
    root, text = shown(s)
    loops = {row[0]: row for row in rows(root) if row[0].startswith("C.") and len(row) == 6}
    assert [loops[name][1] for name in ("C.i_o", "C.j_o", "C.i_i", "C.j_i", "C.k")] == ["4", "4", "16", "8", "48"]
    assert loops["C.i_o"][2] == "parallel" and loops["C.k"][4:] == ["reduction", "reduction through C"]
    whole, tile = 4 * (64 * 48 + 48 * 32 + 64 * 32), 4 * (16 * 48 + 48 * 8 + 16 * 8)
    assert loops["C.i_o"][3] == f"{whole / 1024:.3g} KiB" and loops["C.i_i"][3] == f"{tile / 1024:.3g} KiB"
    assert "distance" in text and "flow" in text
    note = s.explain().loops[0]
    assert (note.trips, note.bytes) == ("4", whole)


def test_sizes_that_are_not_known() -> None:
    n = te.var("n")
    x = te.placeholder((n,), name="x")
    s = te.create_schedule(te.compute((n,), lambda i: x[i] + 1, name="y").op)
    (loop,) = s.explain().loops
    assert (loop.trips, loop.bytes) == ("n", None)
    (known,) = s.explain(sizes={"n": 10}).loops
    assert (known.trips, known.bytes) == ("10", 80)
    shown(s)


def test_kernels_and_their_hot_loop() -> None:
    f = tensorlang.build(topi.schedule([D], "llvm"), [A, B, D])
    root, text = shown(f)
    assert ["D", "float32[64, 32]", "written"] in rows(root) and "loops" in text
    assembly = f.source("asm")
    hot = "\n".join(assembly.split("\n")[hot_loop(assembly).start : hot_loop(assembly).stop])
    if host_cpu().architecture == "x86_64" and "fma" in host_cpu().features:
        assert "vfmadd" in hot
    marked = "".join(element.text or "" for element in root.iter("mark"))
    assert marked == hot.replace("\n", "")


def test_assembly_without_loops_has_none() -> None:
    assert not hot_loop("main:\n\tret\n")


@pytest.mark.skipif(host_cpu().architecture != "x86_64", reason="the clock is that of x86-64")
def test_profiles() -> None:
    from tensorlang.profiling import profile

    machine = Machine(Rates(1, {"fma float32x8": 10.0, "L1": 100.0, "memory": 10.0}), [("L1", 2.0**15)])
    f = tensorlang.build(te.create_schedule(D.op), [A, B, D], target="llvm -num-cores=1")
    arrays = [np.ones([int(n) for n in t.shape], np.float32) for t in (A, B, D)]
    found = profile(f, arrays, repeat=1, machine=machine)
    root, text = shown(found)
    points = [(p.name, "%.4g GFLOP/s" % (p.operations / p.seconds / 1e9)) for p in found.parts if p.limit]
    titles = [node.text or "" for node in root.iter("title")]
    assert len(titles) == len(points) and all(n in t and rate in t for (n, rate), t in zip(points, titles, strict=True))
    assert "compute 160 GFLOP/s" in text and "L1 100 GB/s" in text and "memory 10 GB/s" in text
    roofs = {line.attrib["stroke"]: line for line in root.iter("line")}
    assert len(roofs) == 3 and len({line.attrib["y2"] for line in roofs.values()}) == 1, "all end at the peak"
    assert {"C", "D"} <= {row[0] for row in rows(root)} and "GFLOP/s" in text


def test_results() -> None:
    task = autotune.create_task("matmul", (8, 8, 8))
    root, text = shown(Result(task, None, (), 0, 2.0, 10.0))
    assert "nothing worked" in text and ["trials", "0 in 2 s"] in rows(root)
