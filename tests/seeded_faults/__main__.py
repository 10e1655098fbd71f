"""Sow all faults into all passes of all programs, and print who noticed them: the table of docs/seeded_faults.md."""

from __future__ import annotations

import sys
from collections import Counter

from tests.seeded_faults.mutations import MUTATIONS
from tests.seeded_faults.sowing import PROGRAMS, by_whom, faults, passes_of

PLACES = 3


def main() -> int:
    """Print the table; 1 if a fault was not noticed."""
    rows: dict[tuple[str, str], Counter[str]] = {}
    for name in PROGRAMS:
        for word in passes_of(name):
            for kind, _, message in faults(name, word, tuple(MUTATIONS), len(MUTATIONS), PLACES):
                rows.setdefault((word, kind), Counter())[by_whom(message)] += 1
        print(f"{name}: done", file=sys.stderr)
    print("| pass | fault | sown | noticed by |\n|---|---|---|---|")
    for (word, kind), who in rows.items():
        found = ", ".join(f"{text} ({count})" for text, count in who.most_common())
        print(f"| {word} | {kind} | {who.total()} | {found} |")
    missed = sum(who["not noticed"] for who in rows.values())
    print(f"\n{sum(who.total() for who in rows.values())} faults, {missed} not noticed.")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
