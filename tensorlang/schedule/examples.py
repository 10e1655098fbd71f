"""Examples of the methods of schedules and stages, which are put into their docstrings: texts for doctest."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Mapping
from typing import TypeVar

C = TypeVar("C")

_DECLARED = """\
>>> from tensorlang import te
>>> A = te.placeholder((8, 8), name="A")
>>> B = te.compute((8, 8), lambda i, j: A[i, j] + 1, name="B")
>>> s = te.create_schedule(B.op)
"""

EXAMPLES: Mapping[str, str] = {
    "Schedule.advance": _DECLARED
    + """\
>>> from tensorlang.schedule.primitives import Reverse
>>> s.advance(Reverse("B", "i"), check=True)
('i_r',)
>>> print(str(s).strip())
s['B'].reverse('i')
""",
    "Schedule.apply": _DECLARED
    + """\
>>> outer, inner = s["B"].split("i", factor=4)
>>> s.again(fresh=True).apply(s.trace.steps[0])
('i_o', 'i_i')
""",
    "Schedule.again": _DECLARED
    + """\
>>> other = s.again()
>>> other["B"].vectorize("j")
>>> len(s.trace.steps), len(other.trace.steps)
(0, 1)
""",
    "Schedule.all_or_none": _DECLARED
    + """\
>>> import tensorlang
>>> try:
...     with s.all_or_none():
...         s["B"].vectorize("j")
...         s["B"].reorder("j", "x")
... except tensorlang.ScheduleError:
...     print(len(s.trace.steps))
0
""",
    "Schedule.attempt": _DECLARED
    + """\
>>> s.attempt(lambda: s["B"].reorder("j", "i")), s.attempt(lambda: s["B"].split("x", 4))
(True, False)
""",
    "Schedule.auto_order": _DECLARED
    + """\
>>> print(s.auto_order(parallel=True))
s['B'].parallel('i')
""",
    "Schedule.buffer_of": _DECLARED
    + """\
>>> s.buffer_of(A)
'A'
""",
    "Schedule.compose": _DECLARED
    + """\
>>> from tensorlang.schedule.primitives import Reorder
>>> made = s.compose("swap", lambda state: [Reorder("B", ("j", "i"))])
>>> print(str(s).strip())
s['B'].reorder('j', 'i')
""",
    "Schedule.create_group": _DECLARED
    + """\
>>> group = s.create_group(outputs=B, inputs=A)
>>> s.groups == [group]
True
""",
    "Schedule.declared_operation": _DECLARED
    + """\
>>> s.declared_operation("B").name
'B'
""",
    "Schedule.declares": _DECLARED
    + """\
>>> s.declares(B.op), s.declares(te.compute((4,), lambda i: i).op)
(True, False)
""",
    "Schedule.explain": _DECLARED
    + """\
>>> note = s.explain().loops[0]
>>> note.axis, note.order, note.trips
('i', 'parallel', '8')
""",
    "Schedule.hand_out": _DECLARED
    + """\
>>> s.hand_out("B", "i")
i[0, 8)
""",
    "Schedule.hiding": _DECLARED
    + """\
>>> C = te.compute((8, 8), lambda i, j: B[i, j] * 2, name="C")
>>> s = te.create_schedule([B.op, C.op])
>>> s.hiding(frozenset({"B"})).program.outputs
('B', 'C')
""",
    "Schedule.name_of": _DECLARED
    + """\
>>> s.name_of(B), s.name_of(A)
('B', 'A')
""",
    "Schedule.normalize": _DECLARED
    + """\
>>> s.normalize() is s
True
""",
    "Schedule.operation": _DECLARED
    + """\
>>> [axis.name for axis in s.operation("B").axis]
['i', 'j']
""",
    "Schedule.proven_together": _DECLARED
    + """\
>>> with s.proven_together("both"):
...     s["B"].reorder("j", "i")
...     s["B"].vectorize("i")
>>> print(str(s).strip())
s['B'].reorder('j', 'i')
s['B'].vectorize('i')
""",
    "Schedule.ranges": _DECLARED
    + """\
>>> s.ranges("B")["i"].extent
8
""",
    "Schedule.replay": _DECLARED
    + """\
>>> s["B"].vectorize("j")
>>> other = te.create_schedule(B.op)
>>> other.replay(s.trace)
>>> print(str(other).strip())
s['B'].vectorize('j')
""",
    "Schedule.require_axis": _DECLARED
    + """\
>>> s.require_axis("split", s["B"].op.axis[0], "B")
'i'
""",
    "Schedule.require_legal": _DECLARED
    + """\
>>> s["B"].vectorize("j")
>>> s.require_legal("what I made")
""",
    "Schedule.returning": _DECLARED
    + """\
>>> C = te.compute((8, 8), lambda i, j: B[i, j] * 2, name="C")
>>> te.create_schedule(C.op).returning([B.op]).program.outputs
('C', 'B')
""",
    "Schedule.sample_perfect_tile": _DECLARED
    + """\
>>> s.sample_perfect_tile("tile", 8, parts=2)
[1]
""",
    "Stage.require_own": _DECLARED
    + """\
>>> s["B"].require_own("split", s["B"].op.axis[0], None, anywhere=False)
'i'
""",
    "Stage.tile": _DECLARED
    + """\
>>> s["B"].tile("i", "j", 4, 2)
(i_o[0, 2), j_o[0, 4), i_i[0, 4), j_i[0, 2))
""",
    "Stage.time_tile": """\
>>> from tensorlang import te
>>> @te.hybrid.script
... def smooth(steps, n, A):
...     for t in range(steps):
...         for i in range(1, n - 1):
...             A[i] = (A[i - 1] + A[i] + A[i + 1]) / 3.0
...     return A
>>> n, steps = te.var("n"), te.var("steps")
>>> s = te.create_schedule(smooth(steps, n, te.placeholder((n,), name="A")).op)
>>> [axis.name for axis in s["smooth"].time_tile("t", ["i"], 4, [8])]
['t_tile', 'i_tile', 't', 'i']
""",
    "Stage.wavefront": _DECLARED
    + """\
>>> s["B"].wavefront("i", "j")
(j_s[0, 15), i[0, 8))
>>> print(str(s).strip())
s['B'].skew('j', by='i', factor=1)
s['B'].reorder('j_s', 'i')
s['B'].parallel('i')
""",
}
"""The examples by class and method."""

__test__ = EXAMPLES


def with_examples(cls: type[C]) -> type[C]:
    """The class, with the examples that it has here behind the docstrings of its methods."""
    for name, text in EXAMPLES.items():
        if name.startswith(f"{cls.__name__}."):
            method = getattr(cls, name.partition(".")[2])
            method.__doc__ = f"{inspect.cleandoc(method.__doc__)}\n\n{textwrap.indent(text, '    ')}"
    return cls
