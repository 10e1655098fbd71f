"""What became of the cases of a soak, by kind and outcome; faults with the same last line are one."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import field
from typing import Any

from tensorlang.dataclass import dataclass
from tensorlang.testing.soak.case import Case, Outcome
from tensorlang.testing.soak.worker import Ended


@dataclass(slots=True)
class Fault:
    """Cases that ended with the same line, the first of them, and its file."""

    kind: str
    outcome: Outcome
    line: str
    first: Case
    file: str
    count: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON-able data."""
        return {
            "kind": self.kind,
            "outcome": self.outcome.value,
            "line": self.line,
            "count": self.count,
            "seed": self.first.seed,
            "command": self.first.command,
            "file": self.file,
        }


@dataclass(slots=True)
class Counts:
    """How many cases of each kind had which outcome, the seconds that they took, and the faults."""

    seed: int
    outcomes: dict[str, Counter[Outcome]]
    seconds: dict[str, float] = field(default_factory=dict)
    faults: dict[tuple[str, Outcome, str], Fault] = field(default_factory=dict)
    stopped: bool = False

    def add(self, ended: Ended) -> None:
        """Count a case."""
        kind = ended.case.kind
        self.outcomes[kind][ended.report.outcome] += 1
        self.seconds[kind] = self.seconds.get(kind, 0.0) + ended.seconds

    def add_fault(self, ended: Ended, file: str) -> Fault:
        """Count a fault that was written to a file."""
        line = last_line(ended.report.traceback)
        key = (ended.case.kind, ended.report.outcome, re.sub(r"\d+", "#", line))
        fault = self.faults.setdefault(key, Fault(key[0], key[1], line, ended.case, file))
        fault.count += 1
        return fault

    @property
    def cases(self) -> int:
        """All that have ended."""
        return sum(c.total() for c in self.outcomes.values())

    @property
    def failed(self) -> int:
        """Those that are faults."""
        return sum(n for c in self.outcomes.values() for outcome, n in c.items() if outcome.is_fault)

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON-able data."""
        return {
            "seed": self.seed,
            "stopped": self.stopped,
            "cases": self.cases,
            "failed": self.failed,
            "kinds": {
                kind: {"seconds": round(self.seconds.get(kind, 0.0), 1), **{o.value: found[o] for o in Outcome}}
                for kind, found in self.outcomes.items()
            },
            "faults": [f.to_json() for f in self.faults.values()],
        }


def last_line(traceback: str) -> str:
    """The line that says what happened: the last of a traceback that is not indented and names an error."""
    lines = [line for line in traceback.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[A-Za-z_][\w.]*(Error|Exception|Wrong|Fault|\w*)(: |$)", line)]
    errors = [line for line in named if line.split(":")[0].rpartition(".")[2][:1].isupper()]
    return (errors or lines or [""])[-1][:300]
