"""Steps of records are data: no code comes with them, no text of theirs is code, and what they ask for has bounds."""

from __future__ import annotations

import ast
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import config, te
from tensorlang.autotune import allow_in_records
from tensorlang.errors import ArgumentError, BadArgument, DefinitionError, RecordError, ScheduleError, TooComplex
from tensorlang.ir.expr import Var
from tensorlang.limits import for_a_record
from tensorlang.schedule import Schedule, Trace
from tensorlang.schedule.index_text import is_index, parse_index
from tensorlang.schedule.primitive import REGISTRY, from_json
from tensorlang.schedule.recorded import replay_recorded
from tests.programs import chain, matmul
from tests.schedule.primitive_uses import scatter

IR = "define i32 @f() { ret i32 7 }"
IMPORT = {"step": "pragma", "stage": "C", "axis": "i", "pragma": "import_llvm", "value": IR}
COPY = {"step": "cache_read", "tensor": "B", "scope": "global", "readers": ["C"]}
HOSTILE = ("x = 1; y", "__import__('os').abort()", "[k for k in s]", "a\nb", "a if a else a", "class", "s", "\u212a()")


def _step(key: str, **values: Any) -> dict[str, Any]:
    return {"step": key, **values}


def _layout(index: str) -> list[dict[str, Any]]:
    return [COPY, _step("transform_layout", stage="B.global", axes=["a", "b"], index=[index, "b"])]


def test_code_comes_with_a_record_only_where_the_program_allows_it() -> None:
    with pytest.raises(RecordError, match=r"step 1 brings code of its own, .*; .*allow_in_records"):
        replay_recorded(matmul().s, [IMPORT])
    with allow_in_records(code=["define void @g() { ret void }"]), pytest.raises(RecordError, match="brings code"):
        replay_recorded(matmul().s, [IMPORT])
    with allow_in_records(code=[IR]):
        assert len(replay_recorded(matmul().s, [IMPORT]).trace.steps) == 1
    with pytest.raises(DefinitionError, match="code is a list of texts"), allow_in_records(code=IR):
        pass


def test_an_assumption_of_a_record_is_tested_on_every_call() -> None:
    steps = [
        _step("assume", fact="injective", array="where", low=None, high=None),
        _step("parallel", stage="scattered", axis="i"),
    ]
    twice, out = np.zeros(8, np.int32), np.empty(8, np.int32)
    case = scatter()
    kernel = tensorlang.build(replay_recorded(case.s, steps), case.args)
    with pytest.raises(ArgumentError, match="where is not injective, as the schedule assumes"):
        kernel(twice, twice, out)
    case = scatter()
    with allow_in_records(assumptions=["injective where"]):
        assert not replay_recorded(case.s, steps).tests_assumptions


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        (_layout("a + 4294967296*b"), "field index of step transform_layout is tuple"),
        (_layout("a//0"), "IndexText"),
        (_layout("+".join(["a"] * 500)), "IndexText"),
        (_layout("-" * 50_000 + "a"), "IndexText"),
        (
            [_step("skew", stage="C", axis="j", by="i", factor=10**18)],
            "a number of 6. bits; they have 64",
        ),
        ([_step("skew", stage="C", axis="j", by="i", factor=1 << 62)], "factor is a number of 63 bits"),
        (
            [COPY, _step("storage_align", stage="B.global", axis="ax0", factor=10**9 + 7, offset=3)],
            "takes .* bytes inside",
        ),
        ([COPY, _step("pad", stage="B.global", axis="ax0", factor=10**9)], "takes .* bytes inside"),
        (
            [_step("pragma", stage="C", axis="i", pragma="auto_unroll_max_step", value=10**15)],
            "takes at most 100000 stores",
        ),
        ([_step("split", stage="C", axis="i", factor=[[[[1]]]], nparts=None, tail="guard")], "no field of a step is"),
        ([_step("split", stage="\ud800", axis="i", factor=1, nparts=None, tail="guard")], "halves of characters"),
        ([COPY] * 20_000, "a trace of 20000 steps"),
        ({"step": "split"}, "a trace is a list of steps"),
    ],
)
def test_a_record_that_asks_for_too_much_is_refused(steps: Any, why: str) -> None:
    with pytest.raises((RecordError, ScheduleError), match=why):
        replay_recorded(matmul(64, 64, 32).s, steps)


def test_loops_in_loops_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorlang.schedule.check.DEEPEST", 12)
    steps = [_step("split", stage="C", axis="i" + "_o" * k, factor=1, nparts=None, tail="guard") for k in range(12)]
    with pytest.raises(TooComplex, match="in 13 loops, one in the other; at most 12"):
        replay_recorded(chain().s, steps)


def test_the_time_for_a_record_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 20))
    monkeypatch.setattr("time.thread_time", lambda: float(next(clock)))
    with pytest.raises(TooComplex, match="takes more than 30 s of processor time"):
        replay_recorded(matmul().s, [COPY])


def test_what_a_step_raises_is_an_error_of_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> Any:
        raise OverflowError("too\nlarge")

    monkeypatch.setattr(REGISTRY["cache_read"], "apply", fails)
    with pytest.raises(RecordError, match=r"^its steps cannot be replayed: OverflowError: too$"):
        replay_recorded(matmul().s, [COPY])


def test_a_kernel_has_a_bound_of_statements_and_of_memory() -> None:
    case = matmul(64, 64, 64)
    case.s["C"].pragma("i", "auto_unroll_max_step", 64)
    with config.override(statements=40), pytest.raises(TooComplex, match=r"makes \d+ statements, .* at most 40"):
        tensorlang.build(case.s, case.args)
    case = matmul(64, 64, 64)
    case.s.cache_read("B", "global", ["C"])
    with (
        config.override(scratch=1000),
        pytest.raises(TooComplex, match=r"B.global takes 16,384 bytes .* 1,000"),
    ):
        tensorlang.lower(case.s, case.args)
    with for_a_record(0):
        tensorlang.lower(case.s, case.args)


def test_a_stride_is_found_however_large_the_factor_is() -> None:
    s = matmul(8, 12, 10).s
    copy = s.cache_read("B", "global", ["C"])
    s[copy].storage_align(copy.op.axis[0], 1 << 40, 3)
    layout = matmul(8, 12, 10).s
    blocked = layout.cache_read("B", "global", ["C"])
    outer, *_ = layout[blocked].transform_layout(lambda i, j: (i, j // 4, j % 4))
    with pytest.raises(BadArgument, match=r"no padding inside p0 gives a stride of 4 \* k \+ 3"):
        layout[blocked].storage_align(outer, 4, 3)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("4294967296 * a", "4294967296 does not fit int32"),
        ("a // 0", "division by zero"),
        ("+".join(["a"] * 500), "it has more than 128 operations, one in the other"),
        ("-" * 50_000 + "a", "it has 50001 signs, and at most 4096 are read"),
        ("(" * 400 + "a" + ")" * 400, "too many nested parentheses|it is too deep"),
        ("a.b.c(1)", "is not made of names"),
    ],
)
def test_an_index_text_has_bounds(text: str, why: str) -> None:
    with pytest.raises(BadArgument, match=f"cannot read the index expression .*: .*{why}"):
        parse_index(text, Var)
    assert not is_index(text)


@pytest.mark.parametrize("key", sorted(REGISTRY))
def test_no_text_of_a_step_is_code(key: str) -> None:
    """Every field that takes text, filled with code: it is refused, or the step prints as a call of literals."""
    cls = REGISTRY[key]
    plain = {f.name: _plain(str(f.type)) for f in fields(cls)}
    for field in fields(cls):
        for text in HOSTILE:
            value: Any = [text] if str(field.type).startswith("tuple") else text
            if str(field.type) in ("int", "int | None", "tuple[int, ...]"):
                value = {"decision": text, "value": 1}
                value = [value] if str(field.type).startswith("tuple") else value
            try:
                step = from_json({"step": key, **plain, field.name: value})
            except RecordError:
                continue
            _is_a_call_of_literals(Trace((step,)).to_python(), text)


def _plain(type_: str) -> Any:
    words = {"bool": True, "str": "C", "Identifier": "a", "IndexText": "a", "int": 1}
    if type_.startswith("tuple[tuple"):
        return [[1]]
    if type_.startswith("tuple"):
        return [words[type_[6:].partition(",")[0]]]
    return words.get(type_, 1)


def _is_a_call_of_literals(printed: str, text: str) -> None:
    (statement,) = ast.parse(printed).body
    assert isinstance(statement, ast.Expr | ast.Assign)
    assert isinstance(statement.value, ast.Call)
    names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    called = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
    assert not names & ({text, "__import__"} - {"s"})
    assert all(isinstance(node.func, ast.Attribute) for node in called)
    assert not any(isinstance(node, ast.IfExp | ast.comprehension) for node in ast.walk(statement))


def test_a_user_may_import_what_a_record_may_not() -> None:
    A = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: A[i] + 1, name="b")
    s: Schedule = te.create_schedule(b.op)
    s[b].pragma("i", "import_llvm", "define ptr @memset(ptr %d, i32 %c, i64 %n) { ret ptr null }")
    out = np.empty(4, np.float32)
    tensorlang.build(s, [A, b])(np.zeros(4, np.float32), out)
    assert (out == 1).all()
