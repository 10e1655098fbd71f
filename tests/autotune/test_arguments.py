"""Arguments of programs in records and logs."""

from __future__ import annotations

from tensorlang import te
from tensorlang.autotune.arguments import meant, spelt, with_tensors


def test_what_is_spelt_is_meant() -> None:
    args = (3, 2.5, "float32", None, (1, 1), [2, [3]], ("TENSOR", (4, 5), "float32"), True)
    assert spelt(args) == (
        3,
        2.5,
        "float32",
        "None",
        "(1, 1)",
        "[2, [3]]",
        "('TENSOR', (4, 5), 'float32')",
        True,
    )
    assert meant(spelt(args)) == args


def test_texts_that_spell_nothing_stay_texts() -> None:
    assert meant(("(open", "Nonesuch", "[x]")) == ("(open", "Nonesuch", "[x]")


def test_inputs_are_made_and_spelt() -> None:
    x, number, y = with_tensors(lambda data, *rest: None, [("TENSOR", [4, 5], "float64"), 7, ("TENSOR", [2], "int8")])
    assert (x.op.name, [int(n.value) for n in x.shape], x.dtype, number) == ("data", [4, 5], "float64", 7)
    assert y.op.name == "arg2"
    assert spelt([x]) == ("('TENSOR', (4, 5), 'float64')",)
    other = te.placeholder((2,), name="X")
    assert with_tensors(max, [other]) == [other]
