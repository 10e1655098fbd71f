"""Random schedules full of wishes about stores, code and places: every backend equals the unscheduled program."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, note, settings
from hypothesis import strategies as st

from tensorlang.testing.check import check_schedule
from tensorlang.testing.ordered_programs import ordered_programs
from tensorlang.testing.strategies import programs
from tensorlang.testing.traces import schedules

CASES = settings.get_profile(settings.get_current_profile_name()).max_examples
FAVOURED = ("reverse_compute_at", "reverse_compute_at", "prefetch", "pragma", *("set_store_predicate",) * 2, "atomic")


def test_stages_keep_meaning() -> None:
    taken: Counter[str] = Counter()

    @settings(max_examples=max(CASES, 45))
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        case = data.draw(programs(max_stages=4))
        s = data.draw(schedules(case.outputs, max_steps=10, favoured=FAVOURED))
        note(f"{s.original.text}{s.trace.to_python()}")
        taken.update({step["step"] for step in s.trace.to_json()})
        given_arrays = {t.op.name: a for t, a in zip(case.placeholders, case.inputs, strict=True)}
        check_schedule(s, case.tensors, inputs=given_arrays)

    run()
    assert all(taken[name] for name in FAVOURED), taken


def test_ordered_statements_keep_meaning() -> None:
    @settings(max_examples=CASES // 4)
    @given(data=st.data())
    def run(data: st.DataObject) -> None:
        ordered = data.draw(ordered_programs(data=data.draw(st.booleans())))
        s = data.draw(schedules(ordered.outputs, favoured=("prefetch", "pragma", "atomic", "fuse_with")))
        note(f"{s.original.text}{s.trace.to_python()}")
        for sizes in ordered.sizes[-2:]:
            check_schedule(s, ordered.args, sizes, inputs=ordered.inputs(sizes))

    run()
