"""What s.explain() says of a schedule, in words, as data, and as a picture."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from tensorlang import te
from tensorlang.errors import BadArgument
from tensorlang.schedule import Schedule


def seidel() -> Schedule:
    t, n = te.var("t"), te.var("n")
    a = te.placeholder((n, n), "float64", name="A")

    @te.hybrid.script
    def sweep(a: Any, t: Any) -> None:
        n = a.shape[0]
        for step in range(t):  # noqa: B007
            for i in range(1, n - 1):
                for j in range(1, n - 1):
                    a[i, j] = (a[i - 1, j] + a[i, j - 1] + a[i, j] + a[i, j + 1] + a[i + 1, j]) / 5.0

    made: Schedule = te.create_schedule(sweep(a, t).op)
    return made


def rows() -> Schedule:
    a = te.placeholder((64, 64), name="A")
    b = te.compute((64, 64), lambda i, j: a[i, j] * 2, name="B")
    k = te.reduce_axis((0, 62), "k")
    c = te.compute((62,), lambda i: te.sum(b[i, k] + b[i + 2, k + 2], axis=k), name="C")
    made: Schedule = te.create_schedule(c.op)
    return made


def test_distances_name_the_nearest_pairs_of_each_access() -> None:
    found = {(d.kind, d.text()) for d in seidel().explain().dependences}
    assert ("flow", "(0, 1, 0)") in found
    assert ("flow", "(1, 0, -1)") in found
    assert ("anti", "(0, 0, 1)") in found
    assert ("output", "(1, 0, 0)") in found
    assert not any(text.startswith("(0..") for _, text in found)


def test_loops_say_what_they_carry() -> None:
    s = rows()
    text = str(s.explain())
    assert "C.i  parallel: no dependence between its iterations" in text
    assert "C.k  reduction: carries reduction through C; any order, not at once" in text
    assert "B.j  parallel: no dependence between its iterations; permutable with the loop around it" in text
    assert "sweep.step  sequential: carries flow, anti and output through A" in str(seidel().explain())


def test_permutable_loops_are_those_that_may_be_exchanged() -> None:
    s = seidel()
    before = {n.axis: n.movable for n in s.explain().loops}
    assert before == {"step": False, "i": False, "j": True}
    i = s["sweep"].skew("i", by="step", factor=1)
    j = s["sweep"].skew("j", by="step", factor=1)
    assert {n.axis: n.movable for n in s.explain().loops} == {"step": False, str(i): True, str(j): True}
    s["sweep"].reorder(j, "step")


def test_recomputation_is_counted() -> None:
    s = rows()
    i_o, _ = s["C"].split("i", factor=8)
    s["B"].compute_at(s["C"], i_o)
    (b,) = [n for n in s.explain().stages if n.stage == "B"]
    assert b.place == "at i_o of C"
    assert b.shape == ("10", "64") and b.bytes == 2560
    assert b.reads == (("A", "10 x 64"),)
    assert b.recomputed == pytest.approx((7 * 10 + 8) / 64)


def test_sizes_give_symbolic_programs_numbers() -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] * 2, name="B")
    c = te.compute((n - 2,), lambda i: b[i] + b[i + 2], name="C")
    s = te.create_schedule(c.op)
    i_o, _ = s[c].split("i", factor=8)
    s[b].compute_at(s[c], i_o)
    assert "recomputation depends on the sizes" in str(s.explain())
    (note,) = [x for x in s.explain(sizes={"n": 34}).stages if x.stage == "B"]
    assert note.recomputed == pytest.approx(4 * 10 / 34)
    with pytest.raises(BadArgument, match="m is no size of the program; there are n"):
        s.explain(sizes={"m": 3})


def test_the_explanation_is_data_too() -> None:
    data = json.loads(json.dumps(rows().explain().to_json()))
    assert data["loops"][-1] == {
        "stage": "C", "axis": "k", "depth": 1, "runs": "", "order": "reduction", "movable": True,
        "because": "reduction through C", "trips": "62", "bytes": 772,
    }  # fmt: skip


def test_the_picture_shows_points_in_order_and_arrows() -> None:
    s = seidel()
    s["sweep"].skew("i", by="step", factor=1)
    root = ElementTree.fromstring(s.explain(as_="svg", axes=("step", "i"), sizes={"t": 3, "n": 6}))
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{space}circle")) == 3 * 4
    numbers = [t.text for t in root.findall(f"{space}text")][-12:]
    assert numbers == [str(k) for k in range(12)]
    assert len(root.findall(f"{space}line")) > 12


def test_the_page_is_whole_and_shows_reuse_and_memory() -> None:
    a, b = te.placeholder((64, 32), name="A"), te.placeholder((32, 16), name="B")
    k = te.reduce_axis((0, 32), "k")
    c = te.compute((64, 16), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((64, 16), lambda i, j: c[i, j] + 1, name="D")
    e = te.compute((64, 16), lambda i, j: d[i, j] * 2, name="E")
    text = te.create_schedule(e.op).explain(as_="html")
    assert text.startswith("<!doctype html>") and "http" not in text
    body = re.sub(r"<meta[^>]*>", "", text.partition("\n")[2]).replace(' open=""', "")
    root = ElementTree.fromstring(body)
    outer = next(node for node in root.iter("details"))
    lines = ["".join(line.itertext()) for line in outer.iter() if line.tag in ("summary", "div")]
    assert [line.partition(" ")[0].partition("parallel")[0] for line in lines[:2]] == ["C.i", "C.j"]
    row, every = 4 * (32 + 32 * 16 + 16), 4 * (64 * 32 + 32 * 16 + 64 * 16)
    assert f"each byte {64 * row / every:.3g} times" in lines[0]
    chart = next(node for node in root.iter("svg"))
    bars = [(float(bar.attrib["x"]), float(bar.attrib["width"])) for bar in chart.iter("rect")]
    assert [x for x, _ in bars] == sorted(x for x, _ in bars) and bars[0][1] > bars[-1][1]
    assert [t.text for t in chart.iter("text")][-3:] == ["4 KiB", "8 KiB", "8 KiB"]


def test_sizes_that_are_not_known_stay_open_on_the_page() -> None:
    text = seidel().explain(as_="html")
    assert "depends on sizes" in text and "each byte" not in text
    assert "depends on sizes" not in seidel().explain(as_="html", sizes={"t": 3, "n": 8})


def test_the_order_of_the_picture_is_that_of_the_schedule() -> None:
    a = te.placeholder((4, 6), name="A")
    b = te.compute((4, 6), lambda i, j: a[i, j] + 1, name="B")
    s = te.create_schedule(b.op)
    s[b].reorder("j", "i")
    root = ElementTree.fromstring(s.explain(as_="svg"))
    path = root.find("{http://www.w3.org/2000/svg}polyline")
    assert path is not None
    first, second = path.attrib["points"].split()[:2]
    assert first.split(",")[0] == second.split(",")[0], "the first step goes down a column"


def test_unknown_forms_and_axes_are_refused() -> None:
    s = seidel()
    with pytest.raises(BadArgument, match="unknown form 'png'; there are text, svg and html"):
        s.explain(as_="png")
    with pytest.raises(BadArgument, match="has no axis 'x'"):
        s.explain(as_="svg", axes=("x", "i"))
    with pytest.raises(BadArgument, match="no statement 'S9'"):
        s.explain(as_="svg", statement="S9")


def test_strict_after_rfactor_is_refused() -> None:
    s = rows()
    _, k_i = s["C"].split("k", factor=4)
    s.rfactor("C", k_i)
    with pytest.raises(BadArgument, match="rfactor has changed the order of the floating-point updates of C"):
        s.strict()


def test_a_tile_of_no_size_is_refused() -> None:
    with pytest.raises(BadArgument, match="tile must be a whole number of at least 1, got 0"):
        seidel().auto_order(tile=0)


@pytest.mark.parametrize(
    ("shape", "tile", "points", "tiles", "cut"),
    [
        ((16, 16), (4, 4), 256, 16, ""),
        ((16, 16), (5, 4), 256, 16, ""),
        ((20, 70), (4, 16), 640, 10, "the first 32 along j"),
        ((1000, 1000), (10, 8), 30 * 32, 12, "the first 30 along i, the first 32 along j"),
        ((1000, 1000), (64, 64), 1024, 0, "the first 32 along i, the first 32 along j"),
    ],
)
def test_a_picture_has_whole_tiles_at_any_size(
    shape: tuple[int, int], tile: tuple[int, int], points: int, tiles: int, cut: str
) -> None:
    a = te.placeholder(shape, name="A")
    b = te.compute(shape, lambda i, j: a[i, j] + 1, name="B")
    s = te.create_schedule(b.op)
    s[b].tile("i", "j", *tile)
    text = s.explain(as_="svg")
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{space}circle")) == points
    boxes = [r for r in root.findall(f"{space}rect") if r.get("class") == "tile"]
    assert len(boxes) == tiles and (cut in text) and (">tile<" in text) == bool(tiles)
    path = root.find(f"{space}polyline")
    assert path is not None and len(path.attrib["points"].split()) == points


def test_a_picture_of_fused_loops_has_all_rows() -> None:
    a = te.placeholder((100, 100), name="A")
    b = te.compute((100, 100), lambda i, j: a[i, j] + 1, name="B")
    s = te.create_schedule(b.op)
    s[b].fuse("i", "j")
    assert s.explain(as_="svg").count("<circle") == 1024
