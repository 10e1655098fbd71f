"""te.hybrid.script: what the language lacks is refused, at its line, with a way out."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorlang import te
from tensorlang.errors import DefinitionError
from tensorlang.te.hybrid import ScriptError
from tests.te.hybrid_runs import from_text

a = te.placeholder((8,), name="a")
b = te.placeholder((8, 8), name="b")
index = te.placeholder((8,), "int32", name="index")
outside = te.placeholder((8,), name="outside")
n = te.var("n")


def body(text: str, parameters: str = "a, b, index") -> str:
    """A script of these lines; the faulty one ends with a `#`."""
    lines = textwrap.indent(textwrap.dedent(text).strip("\n"), "    ")
    return f"@te.hybrid.script\ndef faulty({parameters}):\n{lines}\n"


REFUSED = {
    "while": ("while a[0] > 0:  #\n    a[0] -= 1", "no while; loop over a range, with an if inside"),
    "break": ("for i in range(8):\n    break  #", "no break; put the rest of the loop's body under an if"),
    "continue": ("for i in range(8):\n    continue  #", "no continue; put the rest"),
    "with": ("with a:  #\n    pass", "no with"),
    "function": ("def inner():  #\n    pass", "no functions inside; write the loops"),
    "import": ("import math  #", "no imports"),
    "global": ("global a_size  #", "no global"),
    "annotation": ("x: float = a[0]  #", "leave the annotation out, and cast: x = float32\\(0\\)"),
    "delete": ("del a  #", "no del; a local ends with its block"),
    "nonlocal_loop": ("for i in a:  #\n    pass", r"a loop runs over range\(\.\.\.\)"),
    "called_loop": ("for i in enumerate(a):  #\n    pass", r"a loop runs over range"),
    "two_variables": ("for i, j in range(8):  #\n    pass", "one variable; write a loop for each"),
    "loop_else": ("for i in range(8):\n    pass\nelse:\n    a[0] = 1  #", "no else"),
    "loop_name": ("for a in range(8):  #\n    pass", "a has a meaning here already"),
    "loop_twice": ("for i in range(8):\n    for i in range(8):  #\n        pass", "i has a meaning here already"),
    "bound_of_data": ("for i in range(index[0]):  #\n    a[i] = 1", "an array or a local scalar; loop over"),
    "bound_of_local": ("m = 3\nm = m + 1\nfor i in range(m):  #\n    a[i] = 1", "reads an array or a local scalar"),
    "bound_not_affine": ("for i in range(8):\n    for j in range(i * i):  #\n        pass", "is not affine; bounds"),
    "bound_float": ("for i in range(8 / 2):  #\n    a[i] = 1", "integers, got the bound 8 / 2; cast it or use //"),
    "step_zero": ("for i in range(0, 8, 0):  #\n    a[i] = 1", "the step of a loop is a constant other than 0"),
    "step_variable": ("for i in range(1, 8):\n    for j in range(0, 8, i):  #\n        pass", "other than 0, got i"),
    "bounds_count": ("for i in range(0, 8, 1, 2):  #\n    pass", "an end, or a begin, an end and a step"),
    "const_range": ("for i in range(8):\n    for j in const_range(i):  #\n        pass", "needs constant bounds"),
    "bind_tag": ("for i in bind('warp', 8):  #\n    pass", "unknown thread tag 'warp'"),
    "bind_alone": ("for i in bind(8):  #\n    pass", "bind takes a thread and an extent"),
    "after_loop": ("for i in range(8):\n    a[i] = 1\na[0] = i  #", "i ends with the loop over i of line 3"),
    "after_block": ("for i in range(8):\n    if i > 2:\n        x = a[i]\n    a[i] = x  #", "the if of line 4"),
    "before": ("a[0] = x  #\nx = a[1]", "x is used before it is assigned"),
    "before_itself": ("x = x + 1  #", "x is used before it is assigned"),
    "augmented_first": ("x += 1  #", "x is used before it is assigned"),
    "unknown": ("a[0] = unheard_of  #", "unheard_of means nothing in a script"),
    "unknown_of_te": ("a[0] = te.unheard_of(a[1])  #", "te.unheard_of is not a function that scripts know"),
    "unknown_value_of_te": ("a[0] = te.unheard_of  #", "te.unheard_of means nothing in a script"),
    "unknown_method": ("a[0] = unheard.of(a[0])  #", "unheard means nothing in a script"),
    "function_value": ("a[0] = te.exp  #", r"te.exp is a function; call it, as te.exp\(...\)"),
    "helper": ("a[0] = helper(a[1])  #", "helper is not a function that scripts know; write what it does here"),
    "sum": ("a[0] = sum(a)  #", "no sum; write a loop over the elements"),
    "compute": ("a[0] = te.compute((8,), a)  #", "no te.compute; a script computes element by element"),
    "threads": ("a[0] = max_num_threads()  #", "no max_num_threads; how many threads"),
    "print": ("print(a[0])  #", "no print; print in the Python run alone"),
    "unused": ("te.exp(a[0])  #", "the result is not used; assign it"),
    "module": ("a[0] = te  #", "te is the module 'tensorlang.te'; a script takes numbers"),
    "captured_tensor": ("a[0] = outside[0]  #", "outside is a tensor from outside the script; pass it as an argument"),
    "captured_size": ("a[0] = n  #", "n is a size from outside the script; pass it as an argument"),
    "captured_array": ("a[0] = table[0]  #", "table is an array from outside the script; pass it"),
    "stored_outside": ("outside[0] = 1  #", "outside is a tensor from outside the script; pass it"),
    "stored_in_tuple": ("t = (1, 2)\nt[0] = 1  #", "t is no array; make one with te.allocate"),
    "whole_array": ("a[0] = b + 1  #", r"b is a whole array; take an element: b\[i, j\]"),
    "alias": ("c = b  #\nc[0, 0] = 1", "c would be a second name of the array b; use one"),
    "array_assigned": ("b = 1  #", "b is an array; assign its elements, or take another name"),
    "rank": ("a[0] = b[1]  #", "b has 2 dimensions, indexed with 1"),
    "slice": ("a[0:2] = 1  #", "a slice; write a loop over the elements"),
    "negative_index": ("a[0] = a[-1]  #", "counts from the end in Python, and is outside the array here; use A.shape"),
    "float_index": ("a[0] = a[a[1]]  #", r"an index must be an integer, got .*; cast it, as in int32\(x\)"),
    "literal_float_index": ("a[0] = a[1.5]  #", "an index must be an integer, got 1.5"),
    "shape_index": ("a[0] = a.shape[1]  #", r"index 1 is outside a.shape, of 1"),
    "shape_of_loop": (
        "for i in range(8):\n    t = te.allocate((i,), 'float32')  #\n    a[i] = 1",
        "the shape of t depends on the loop over i; make it as large as it gets",
    ),
    "shape_of_data": ("t = te.allocate((index[0],), 'float32')  #\na[0] = 1", "must not read a tensor"),
    "scope": ("t = te.allocate((8,), 'float32', 'registers')  #", "one of global, local, shared, got 'registers'"),
    "maker_arguments": ("t = te.allocate((8,), kind='float32')  #", "allocate takes shape, dtype, scope"),
    "maker_inside": ("a[0] = te.allocate((8,))[0]  #", "makes an array; give it a name in a line of its own"),
    "maker_twice": ("t = te.allocate((8,))\nt = te.allocate((8,))  #", "t has a meaning here already"),
    "dtype": ("t = te.allocate((8,), 'floaty')  #", "unknown dtype 'floaty'"),
    "output_in_loop": ("for i in range(8):\n    c = te.output_tensor((8,), 'float32')  #", "is made at the top"),
    "loop_as_value": ("a[0] = range(8)  #", r"range begins a loop: for i in range\(...\)"),
    "condition": ("if a[0]:  #\n    a[1] = 1", r"a condition must be bool, got .* of dtype float32; compare it"),
    "condition_of_and": ("if a[0] > 1 and index[0]:  #\n    a[1] = 1", "a condition must be bool"),
    "not_number": ("if not a[0]:  #\n    a[1] = 1", "a condition must be bool"),
    "compare": ("if a[0] in a:  #\n    a[1] = 1", "a script compares with ==, !=, <, <=, > and >="),
    "narrow_local": (
        "x = index[0]\nfor i in range(8):\n    x = x + a[i]  #",
        r"x is int32 since line 3, and float32 is needed here; cast in line 3, as x = float32\(...\)",
    ),
    "several_targets": ("x = y = a[0]  #", "assign one name or element a line"),
    "swap": ("x = a[0]\ny = a[1]\nx, y = y, x  #", "assign one name or element a line; only a shape can be unpacked"),
    "unpack_count": ("x, y = a.shape  #", "2 names for 1 values"),
    "attribute": ("a.shape = 3  #", "assign one name or element a line"),
    "integer_division": ("index[0] = index[1] / 2  #", "/ on integers is ambiguous"),
    "augmented_division": ("index[0] /= 2  #", "/ on integers is ambiguous"),
    "zero_division": ("a[0] = 1 // 0  #", "division by zero"),
    "matmul": ("a[0] = a[0] @ a[1]  #", "@ is not part of scripts; write the loops"),
    "augmented_matmul": ("a[0] @= a[1]  #", "@= is not part of scripts"),
    "power_of_integer": ("index[0] = index[1] ** index[2]  #", "constant from 1 to 16; cast it first"),
    "fraction": ("index[0] = 2.5  #", "2.5 is not an integer"),
    "sqrt_of_integer": ("a[0] = te.sqrt(index[0])  #", "sqrt needs a float, got int32"),
    "operand_count": ("a[0] = te.sqrt(a[0], a[1])  #", "te.sqrt: too many positional arguments"),
    "keyword": ("a[0] = te.sqrt(x=a[0])  #", "te.sqrt: takes no keywords"),
    "choice_count": ("a[0] = te.if_then_else(a[0] > 1, a[1])  #", "takes a condition and two values"),
    "method": ("a[0] = a[1].sum()  #", r"no method of a script; a number has astype\(dtype\)"),
    "astype_of_literal": ("for i in range(8):\n    a[i] = i.astype('float32')  #", r"use te.cast\(i, ...\)"),
    "array_attribute": ("a[0] = a.size  #", "an array has shape, dtype and ndim"),
    "length": ("a[0] = len(3)  #", "len takes an array or a tuple"),
    "lambda": ("f = lambda x: x  #", "a lambda; write its expression where it is used"),
    "comprehension": ("a[0] = [x for x in a]  #", "a list comprehension; write a loop"),
    "walrus": ("a[0] = (x := a[1])  #", "an assignment inside an expression"),
    "text": ("a[0] = 'one'  #", "expected a number, got 'one'"),
    "two_texts": ("t = 'one'  #\nt = 'two'\na[0] = 1", "t is assigned more than once, but 'one' is no number"),
    "return_inside": ("for i in range(8):\n    a[i] = 1\n    return a  #", "return stands once, as the last statement"),
    "return_value": ("a[0] = 1\nreturn a[0]  #", "a script returns arrays by name, each once"),
    "return_twice": ("a[0] = 1\nreturn a, a  #", "each once"),
    "return_input": ("a[0] = 1\nreturn b  #", "b is no output; return arrays made with te.output_tensor"),
    "return_local": ("t = te.allocate((8,))\na[0] = t[0]\nreturn t  #", "t is no output"),
    "not_returned": ("c = te.output_tensor((8,))\na[0] = 1\nreturn a  #", "the output c is not returned"),
}  # fmt: skip


def helper(x: float) -> float:
    return x


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_line_and_the_way_out(name: str) -> None:
    lines, message = REFUSED[name]
    text = body(lines)
    script = from_text(text, "faulty", outside=outside, n=n, helper=helper, table=np.zeros(3))
    with pytest.raises(ScriptError, match=message) as caught:
        script(a, b, index)
    number = next(k for k, line in enumerate(text.splitlines(), 1) if line.endswith("#"))
    quoted = text.splitlines()[number - 1].strip()
    assert caught.value.where is not None and caught.value.where.line == number
    assert str(caught.value).splitlines()[-2:] == [f"    {quoted}", f"  at {Path(script.source.file).name}:{number}"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (body("c = te.output_tensor((8,))\nc[0] = a[0]"), "makes the output c; end it with return c"),
        (body("x = a[0]"), "has no result; return an array made with te.output_tensor"),
        (body("pass"), "has no result"),
    ],
)
def test_scripts_without_result(text: str, message: str) -> None:
    with pytest.raises(ScriptError, match=message) as caught:
        from_text(text, "faulty")(a, b, index)
    assert "def faulty(" in str(caught.value)


def test_parameters_are_fixed() -> None:
    with pytest.raises(ScriptError, match=r"a fixed number of parameters; name those of \*tensors"):
        from_text(body("pass", "*tensors"), "faulty")


def test_only_functions_with_a_source_are_scripts() -> None:
    with pytest.raises(DefinitionError, match="takes a Python function, got 3"):
        te.hybrid.script(3)  # type: ignore[call-overload]
    with pytest.raises(DefinitionError, match=r"a function declared with def"):
        te.hybrid.script(lambda x: x)
    names: dict[str, Any] = {}
    exec("def nowhere(a):\n    a[0] = 1\n", names)
    with pytest.raises(DefinitionError, match="the source of nowhere cannot be found; define the script in a file"):
        te.hybrid.script(names["nowhere"])
    with pytest.raises(DefinitionError, match="name must be letters"):
        te.hybrid.script(name="two words")(helper)


@te.hybrid.script
def copied(x: Any, y: Any) -> None:
    for i in range(len(x)):
        y[i] = x[i]


def test_arguments() -> None:
    array = np.zeros(8, "float32")
    for arguments, message in (
        ((a, array), "copied got the tensor x and the array y; pass tensors to declare a program, or arrays to run it"),
        ((a,), r"copied\(x, y\): missing a required argument: 'y'"),
        ((a, a), "copied updates y, and x is the same tensor; pass a copy for one of them"),
        ((a, object()), "copied got <object object .* for y; it takes tensors, numbers, sizes"),
        ((a, a[0] + 1), r"copied got .* for y; it takes tensors, numbers"),
    ):
        with pytest.raises(DefinitionError, match=message) as caught:
            copied(*arguments)
        assert caught.value.where is not None and caught.value.where.file == __file__


def test_a_script_does_not_change_what_it_was_given_as_number() -> None:
    with pytest.raises(ScriptError, match="alpha is a parameter and cannot change; take another name"):
        from_text(body("alpha = alpha * 2\na[0] = alpha", "a, alpha"), "faulty")(a, 2.0)
    with pytest.raises(ScriptError, match="i is the variable of the loop in line 3 and cannot change"):
        from_text(body("for i in range(8):\n    i = i + 1\n    a[i] = 1"), "faulty")(a, b, index)


def test_errors_of_the_plain_run_are_in_the_users_file() -> None:
    @te.hybrid.script
    def outside_of_it(x: Any) -> None:
        x[99] = 1

    with pytest.raises(IndexError) as caught:
        outside_of_it(np.zeros(8))
    last = caught.traceback[-1]
    assert str(last.path) == __file__ and "x[99] = 1" in str(last.statement)
