"""Control flow: what is known ahead is read in place, branches are chosen when the network runs, and run alone."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import config
from tensorlang.errors import DefinitionError, RecordError
from tensorlang.export.loading import prove
from tensorlang.networks.onnx.reading import from_onnx, read_model
from tensorlang.networks.refusal import UnsupportedModel
from tests.networks.models import drawn, graph, model, node, onnx, reference
from tests.thoroughness import draws

ZERO = {"zero": np.float32(0)}
ROOTS = np.abs(drawn(5)) + 1


def asked(value: str, name: str) -> list[Any]:
    """Whether the sum of a value is greater than 0."""
    return [node("ReduceSum", value, f"{name}_sum", keepdims=0), node("Greater", f"{name}_sum zero", name)]


def chosen() -> Any:
    """A product in one branch, and a tangent of what is around it in the other."""
    then = graph([node("MatMul", "e w", "product"), node("Relu", "product", "a")], "a", weights={"w": drawn(4, 4)})
    other = graph([node("Add", "e x", "sum"), node("Tanh", "sum", "b")], "b")
    branches = node("If", "positive", "c", then_branch=then, else_branch=other)
    nodes = [node("Exp", "x", "e"), *asked("x", "positive"), branches, node("Mul", "c e", "y")]
    return model(nodes, {"x": (3, 4)}, "y", ZERO)


def random_nodes(draw: random.Random, known: list[str], depth: int, name: str) -> tuple[list[Any], str]:
    """Nodes over values of the shape (3,) that are known, of which some have branches, and the name of the last."""
    nodes: list[Any] = []
    for number in range(draw.randint(1, 4)):
        made = f"{name}_{number}"
        if depth and draw.random() < 0.5:
            arms = [random_nodes(draw, list(known), depth - 1, f"{made}{arm}") for arm in "te"]
            graphs = [graph(inner, last) for inner, last in arms]
            nodes += asked(draw.choice(known), f"{made}_is")
            nodes.append(node("If", f"{made}_is", made, then_branch=graphs[0], else_branch=graphs[1]))
        else:
            op, count = draw.choice([("Neg", 1), ("Tanh", 1), ("Add", 2), ("Sub", 2), ("MatMul", 1)])
            read = " ".join(draw.choice(known) for _ in range(count)) + (" w" if op == "MatMul" else "")
            nodes.append(node(op, read, made))
        known.append(made)
    return nodes, known[-1]


@pytest.mark.parametrize("seed", range(draws(3, 200)))
def test_random_branches(seed: int) -> None:
    draw = random.Random(seed)
    nodes, last = random_nodes(draw, ["x", "v"], 3, "n")
    branches = node("If", "last", "y", then_branch=graph([node("Neg", last, "m")], "m"), else_branch=graph([], "x"))
    proto = model([*nodes, *asked(last, "last"), branches], {"x": (3,), "v": (3,)}, "y", {**ZERO, "w": drawn(3, 3)})
    made = tensorlang.compile(from_onnx(proto))
    for number in range(6):
        x, v = drawn(3, seed=number), drawn(3, seed=number + 10)
        np.testing.assert_allclose(made(x, v), reference(proto, x, v)[0], rtol=1e-4, atol=1e-5)


def test_only_the_branch_that_is_taken_runs() -> None:
    proto, x = chosen(), np.abs(drawn(3, 4))
    made = tensorlang.compile(from_onnx(proto))
    for given, node_name in ((x, "the product"), (-x, "the b")):
        np.testing.assert_allclose(made(given), reference(proto, given)[0], rtol=1e-5)
        ran = {kernel.node for kernel in made.profile(given)}
        assert node_name in ran and len(ran & {"the product", "the b"}) == 1


def test_a_library_runs_one_branch_and_is_proven(tmp_path: Path) -> None:
    made = tensorlang.compile(from_onnx(chosen()))
    made.export(tmp_path / "net", ("so",))
    loaded, x = tensorlang.load(tmp_path / "net.so"), drawn(3, 4)
    for given in (x, -x):
        np.testing.assert_array_equal(loaded(given), made(given))
    path = tmp_path / "net.json"
    assert prove(path)
    for wrong, why in (("x", "no truth value"), (None, "before it is written")):
        known = json.loads(path.read_text(encoding="utf-8"))
        for guard in (guard for step in known["network"]["steps"] for guard in step["guards"]):
            guard[0], guard[2] = wrong or guard[0], not guard[2]
        changed = tmp_path / "changed.json"
        changed.write_text(json.dumps(known), encoding="utf-8")
        with pytest.raises(RecordError, match=why):
            prove(changed)


def test_a_second_start_chooses_too(tmp_path: Path) -> None:
    onnx.save(chosen(), tmp_path / "m.onnx")
    with config.override(cache_dir=tmp_path / "cache"):
        first, again = (tensorlang.compile(tmp_path / "m.onnx") for _ in range(2))
    x = drawn(3, 4)
    assert again.again is not None
    for given in (x, -x):
        np.testing.assert_array_equal(again(given), first(given))


def test_what_is_known_of_inputs_decides() -> None:
    small, large = graph([node("Slice", "x one two", "a")], "a"), graph([node("Neg", "x", "b")], "b")
    weights = {"one": np.array([1]), "two": np.array([2])}
    proto = model(
        [node("If", "short", "y", then_branch=small, else_branch=large)],
        {"x": (3,), "short": ()},
        "y",
        weights,
        dtypes={"short": np.bool_},
    )
    with pytest.raises(UnsupportedModel, match=r"float32\[1\] and float32\[3\], of which .* known="):
        from_onnx(proto)
    x = drawn(3)
    for short in (True, False):
        network = from_onnx(proto, known={"short": short})
        assert network.input_names == ("x",)
        np.testing.assert_array_equal(tensorlang.compile(network)(x), reference(proto, x, np.array(short))[0])
    for known, why in (({"short": 0.5}, "cannot hold"), ({"short": [True]}, "shape"), ({"no": 1}, "no inputs no")):
        with pytest.raises(DefinitionError, match=why):
            from_onnx(proto, known=known)


def counted(trips: int | None, condition: bool | None, stop: int | None) -> Any:
    """A loop that adds its number to its state, tells each state, and ends when its number is one to stop at."""
    nodes = [
        node("Cast", "i", "number", to=1),
        node("Add", "state number", "next"),
        node("Mul", "next x", "row"),
        node("Identity", "before", "go") if stop is None else node("Less", "i stop", "go"),
    ]
    body = graph(nodes, "go next row", {"i": 0, "before": True, "state": drawn(3)}, {"stop": np.array(stop or 0)})
    weights: dict[str, Any] = {"start": np.ones(3, np.float32)}
    weights |= {} if trips is None else {"trips": np.array(trips)}
    weights |= {} if condition is None else {"first": np.array(condition)}
    names = f"{'-' if trips is None else 'trips'} {'-' if condition is None else 'first'} start"
    return model([node("Loop", names, "last rows", body=body)], {"x": (3,)}, "last rows", weights)


@pytest.mark.parametrize(
    ("trips", "condition", "stop"),
    [(4, None, 9), (9, True, 2), (None, True, 3), (1, None, 0), (0, None, 9), (9, False, 2)],
)
def test_loops_that_are_known_ahead(trips: int | None, condition: bool | None, stop: int) -> None:
    proto, x = counted(trips, condition, stop), drawn(3)
    made = tensorlang.compile(from_onnx(proto))(x)
    for got, want in zip(made, onnxruntime(proto, {"x": x}), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


def newton() -> Any:
    """Square roots by Newton's iteration, as often as the network is told or until all are near: x and guesses."""
    nodes = [
        node("Div", "x guess", "ratio"),
        node("Add", "guess ratio", "twice"),
        node("Mul", "twice half", "better"),
        node("Sub", "better guess", "change"),
        node("Abs", "change", "size"),
        node("ReduceMax", "size", "largest", keepdims=0),
        node("Greater", "largest near", "go"),
        node("Add", "count one", "counted"),
    ]
    weights = {"half": np.full(5, 0.5, np.float32), "near": np.float32(1e-3), "one": np.array(1)}
    body = graph(nodes, "go better counted", {"i": 0, "before": True, "guess": drawn(5), "count": 0}, weights)
    start = {"zero": np.float32(0), "none": np.array(0)}
    nodes = [
        node("Relu", "x", "guess0"),
        *asked("x", "is"),
        node("Loop", "most is guess0 none", "root n", body=body),
        node("Add", "root guess0", "y"),
    ]
    return model(nodes, {"x": (5,), "most": ()}, "y n", start, dtypes={"most": np.int64})


@pytest.mark.parametrize(("most", "sign"), [(50, 1), (2, 1), (0, 1), (50, -1)])
def test_loops_that_the_network_ends(most: int, sign: int) -> None:
    """Ended by their condition, by their number, before they begin by either."""
    proto, x = newton(), sign * (np.abs(drawn(5)) + 1)
    made = repeated_newton()(x, np.array(most))
    wanted = onnxruntime(proto, {"x": x, "most": np.array(most)})
    np.testing.assert_allclose(made[0], wanted[0], rtol=1e-5)
    assert made[1] == wanted[1] and (2 < made[1] < 50) == (most * sign == 50)


@cache
def repeated_newton() -> Any:
    return tensorlang.compile(from_onnx(newton()))


def test_what_a_loop_that_runs_tells_and_keeps(tmp_path: Path) -> None:
    made = repeated_newton()
    assert made.memory().weights == 5 * 4 + sum(w.nbytes for w in made.weights.values())
    (kernel,) = (k for k in made.profile(np.ones(5, np.float32), np.array(3)) if k.op == "Loop")
    assert kernel.node == "the root"
    onnx.save(newton(), tmp_path / "m.onnx")
    with config.override(cache_dir=tmp_path / "cache"):
        x = np.full(5, 2.0, np.float32)
        for _ in range(2):
            assert tensorlang.compile(tmp_path / "m.onnx")(x, np.array(9))[0] == pytest.approx(2 + 2**0.5, abs=1e-4)


def collected() -> Any:
    """A body of four nodes, 300 times, within a branch that may be skipped."""
    (loop,) = counted(300, None, None).graph.node
    inner = graph([loop], "last rows", weights={"start": np.ones(3, np.float32), "trips": np.array(300)})
    zeros = {"s": np.zeros(3, np.float32), "r": np.zeros((300, 3), np.float32)}
    nodes = [*asked("x", "is"), node("If", "is", "y z", then_branch=inner, else_branch=graph([], "s r", weights=zeros))]
    return model(nodes, {"x": (3,)}, "y z", ZERO)


def test_long_loops_are_run_and_collect_rows() -> None:
    whole, x = collected(), drawn(3)
    made = tensorlang.compile(from_onnx(whole))
    for given in (x, -x):
        for got, want in zip(made(given), onnxruntime(whole, {"x": given}), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5)
        ran = {kernel.op for kernel in made.profile(given)}
        assert ("Loop" in ran) == (given.sum() > 0)


def nested() -> Any:
    """As often as an input says the products of a state by a matrix, of each of which its number of roots is taken."""
    same = graph([node("Identity", "p", "q")], "q")
    roots = graph([node("Relu", "s", "up"), node("Sqrt", "up", "t")], "b t", {"j": 0, "b": True, "s": drawn(4)})
    nodes = [
        node("MatMul", "v w", "p"),
        *asked("p", "is"),
        node("If", "is", "f", then_branch=same, else_branch=graph([node("Neg", "p", "n")], "n")),
        node("Loop", "i - f", "r", body=roots),
        node("Add", "r x", "next"),
    ]
    body = graph(nodes, "go next", {"i": 0, "go": True, "v": drawn(4)}, {"w": drawn(4, 4), **ZERO})
    return model([node("Loop", "k - x", "y", body=body)], {"x": (4,), "k": ()}, "y", dtypes={"k": np.int64})


EXPORTED: dict[str, tuple[Callable[[], Any], list[list[Any]]]] = {
    "ended by the network": (newton, [[x, np.array(k)] for k in (50, 2, 0) for x in (ROOTS, -ROOTS)]),
    "rows in a branch": (collected, [[drawn(3)], [-drawn(3)]]),
    "loops in loops": (nested, [[drawn(4), np.array(k)] for k in (0, 1, 5)]),
    "a scan": (lambda: scanned(True, 300), [[drawn(3, 2), drawn(3, 300, 2, seed=1)]]),
}


@pytest.mark.parametrize("what", EXPORTED)
def test_a_library_runs_loops(what: str, tmp_path: Path) -> None:
    proto, calls = EXPORTED[what][0](), EXPORTED[what][1]
    made = tensorlang.compile(from_onnx(proto))
    made.export(tmp_path / "net", ("so",), embed=True)
    loaded = tensorlang.load(tmp_path / "net.so")
    assert prove(tmp_path / "net.so") and isinstance(loaded, tensorlang.networks.Model)
    for given in calls:
        for got, same in zip(loaded.run(given), made.run(given), strict=True):
            np.testing.assert_allclose(got, same, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("what", ["ended by the network", "loops in loops", "rows in a branch"][: draws(1, 3)])
def test_loops_from_c_without_python(what: str, tmp_path: Path) -> None:
    proto, calls = EXPORTED[what][0](), EXPORTED[what][1]
    given = dict(zip((i.name for i in proto.graph.input), calls[-1], strict=True))
    made = tensorlang.compile(from_onnx(proto))
    made.export(tmp_path / "net", ("a", "c"), check=[*calls[-1], *onnxruntime(proto, given)])
    flags = ["-g", "-std=c99", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover"]
    command = ["cc", *flags, "net_test.c", "net.a", "-lm", "-o", "net_test"]
    subprocess.run(command, cwd=tmp_path, check=True)
    told = subprocess.run([tmp_path / "net_test", tmp_path, "0.01"], capture_output=True, text=True, check=True).stdout
    assert told.startswith("net: as expected, ")


def _without_states(step: Any) -> None:
    step["repeat"]["following"].clear()


def _more_trips_than_rows(step: Any) -> None:
    step["repeat"]["trips"] = step["repeat"]["condition"]


def _without_number(step: Any) -> None:
    step["repeat"]["number"] = step["repeat"]["goes_on"]


def _read_before(step: Any) -> None:
    step["steps"].reverse()


def _writes_what_it_is_given(step: Any) -> None:
    (state,) = step["repeat"]["last"].values()
    step["repeat"]["last"] = {step["repeat"]["trips"]: state}


WRONG: dict[str, tuple[Callable[[Any], None], str]] = {
    "states": (_without_states, "of other dtypes or shapes"),
    "trips": (_more_trips_than_rows, "of other dtypes or shapes"),
    "number": (_without_number, "before it is written"),
    "order": (_read_before, "before it is written"),
    "weights": (_writes_what_it_is_given, "an input or a weight"),
}


@pytest.fixture(scope="module")
def rows_in_a_branch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The metadata of a loop in a library."""
    folder = tmp_path_factory.mktemp("rows")
    tensorlang.compile(from_onnx(collected())).export(folder / "net", ("o",))
    return folder / "net.json"


@pytest.mark.parametrize("what", WRONG)
def test_loops_that_cannot_be_right_are_refused(what: str, rows_in_a_branch: Path, tmp_path: Path) -> None:
    known = json.loads(rows_in_a_branch.read_text(encoding="utf-8"))
    change, why = WRONG[what]
    change(next(step for step in known["network"]["steps"] if "repeat" in step))
    (tmp_path / "net.json").write_text(json.dumps(known), encoding="utf-8")
    with pytest.raises(RecordError, match=why):
        prove(tmp_path / "net.json")


def _shared_memory(known: Any) -> None:
    """A state lies where an array that the body computes lies."""
    loop = next(step for step in known["steps"] if "repeat" in step)
    (state,) = loop["repeat"]["states"]
    (made,) = loop["repeat"]["following"].values()
    known["arrays"][state]["at"] = known["arrays"][made]["at"]


def test_what_a_loop_keeps_lies_apart(rows_in_a_branch: Path, tmp_path: Path) -> None:
    known = json.loads(rows_in_a_branch.read_text(encoding="utf-8"))
    _shared_memory(known["network"])
    (tmp_path / "net.json").write_text(json.dumps(known), encoding="utf-8")
    with pytest.raises(RecordError, match="share memory while both are in use"):
        prove(tmp_path / "net.json")


@pytest.mark.parametrize(
    ("made", "state", "why"),
    [
        (
            graph([node("Concat", "s s", "t", axis=0)], "b t", {"i": 0, "b": True, "s": drawn(3)}),
            "x",
            r"float32\[6\] after",
        ),
        (graph([], "b s s", {"i": 0, "b": True, "s": drawn(3)}), "x", "of unknown number"),
        (graph([], "s s", {"i": 0, "b": True, "s": drawn(3)}), "x", "no single truth value"),
        (
            graph([node("Slice", "x i n", "t")], "b t", {"i": 0, "b": True, "s": drawn(3)}),
            "x",
            "computed by the network",
        ),
    ],
)
def test_loops_that_cannot_run(made: Any, state: str, why: str) -> None:
    outputs = "y z" if len(made.output) == 3 else "y"
    nodes = [node("Unsqueeze", "k zero", "n"), node("Loop", f"k - {state}", outputs, body=made)]
    proto = model(nodes, {"x": (3,), "k": ()}, "y", {"zero": np.array([0])}, dtypes={"k": np.int64})
    with pytest.raises(UnsupportedModel, match=why):
        from_onnx(proto)


def scanned(back: bool, length: int) -> Any:
    """A cell along the second axis of x, forwards or back, with rows in that order."""
    nodes = [node("MatMul", "h w", "p"), node("Add", "p x_t", "next"), node("Tanh", "next", "row")]
    body = graph(nodes, "next row", {"h": drawn(3, 2), "x_t": drawn(3, 2)}, {"w": drawn(2, 2)})
    turned: dict[str, Any] = {"scan_input_directions": [1], "scan_output_directions": [1]} if back else {}
    scan = node(
        "Scan", "h0 x", "h rows", body=body, num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1], **turned
    )
    return model([scan], {"h0": (3, 2), "x": (3, length, 2)}, "h rows")


@pytest.mark.covering(1)
@pytest.mark.parametrize("length", [5, 300])
@pytest.mark.parametrize("back", [False, True])
def test_scans(back: bool, length: int) -> None:
    proto = scanned(back, length)
    h, x = drawn(3, 2), drawn(3, length, 2, seed=1)
    made = tensorlang.compile(from_onnx(proto))(h, x)
    for got, want in zip(made, onnxruntime(proto, {"h0": h, "x": x}), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_scan_of_nothing_keeps_its_state() -> None:
    """Which onnxruntime divides by zero for."""
    h, x = drawn(3, 2), np.empty((3, 0, 2), np.float32)
    last, rows = tensorlang.compile(from_onnx(scanned(False, 0)))(h, x)
    np.testing.assert_array_equal(last, h)
    assert rows.shape == (3, 0, 2)


def onnxruntime(proto: Any, inputs: dict[str, Any]) -> list[Any]:
    """What onnxruntime makes; the reference knows no other axes of scans, and no loops that nothing bounds."""
    session = pytest.importorskip("onnxruntime").InferenceSession(
        onnx.shape_inference.infer_shapes(proto).SerializeToString()
    )
    made: list[Any] = session.run(None, inputs)
    return made


def test_branches_of_sequences_are_refused() -> None:
    arms = [graph([node("SequenceConstruct", "w w", name)], name, weights={"w": drawn(2)}) for name in "st"]
    for arm in arms:
        arm.output[0].CopyFrom(onnx.helper.make_tensor_sequence_value_info(arm.output[0].name, 1, None))
    nodes = [*asked("x", "is"), node("If", "is", "c", then_branch=arms[0], else_branch=arms[1])]
    nodes.append(node("SequenceAt", "c at", "y"))
    with pytest.raises(UnsupportedModel, match="passes on a sequence"):
        from_onnx(model(nodes, {"x": (3,)}, "y", {**ZERO, "at": np.array(0)}))


def test_refusals_within_branches_are_told_with_their_nodes() -> None:
    then, other = graph([node("Det", "x", "d")], "d"), graph([node("NonZero", "x", "n"), node("Neg", "n", "e")], "e")
    nodes = [*asked("x", "positive"), node("If", "positive", "c", then_branch=then, else_branch=other)]
    reading = read_model(model([*nodes, node("Neg", "c", "y")], {"x": (3, 3)}, "y", ZERO))
    assert [(r.node, r.op) for r in reading.refused] == [("the d", "Det"), ("the n", "NonZero")]
    assert all("in a branch of the c" in r.why for r in reading.refused)
    assert reading.skipped == ["the e", "the y"]
