"""Random scripts mean as tensor programs what they mean in plain Python, to the last bit."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
from hypothesis import given, note
from hypothesis import strategies as st

from tests.te.hybrid_runs import agree, from_text

SIZE = 5
PARAMETERS = "n, f, g, h, w"  # a size; float64 of one and two dimensions, float32, int32 indices
_DEEPEST = 4


class Writer:
    """Writes the lines of one script, with as many statements as it has room for."""

    def __init__(self, random: Random, room: int = 40) -> None:
        self.random = random
        self.room = room
        self.lines: list[str] = []
        self.loops: list[str] = []
        self.scalars: list[str] = []
        self.count = 0

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def script(self) -> str:
        """A whole script."""
        self.line(0, "@te.hybrid.script")
        self.line(0, f"def script({PARAMETERS}):")
        self.line(1, "out = te.output_tensor((n, n), 'float64')")
        self.line(1, "tmp = te.allocate((n, n), 'float64')")
        self.line(1, "for p in range(n):")
        self.line(2, "for q in range(n):")
        self.line(3, "tmp[p, q] = p - q")
        self.line(3, "out[p, q] = p * q")
        self.block(1)
        self.line(1, self.random.choice(["return out", "return out, f", "return g, out, f"]))
        self.lines[-1:-1] = ["    f[0] += 1", "    g[0, 0] -= 1"]
        return "\n".join(self.lines) + "\n"

    def block(self, depth: int) -> None:
        """One to three statements; scalars that they make end with them."""
        known = list(self.scalars)
        for _ in range(self.random.randint(1, 3) if self.room > 0 else 1):
            self.statement(depth)
        self.scalars = known

    def statement(self, depth: int) -> None:
        self.room -= 1
        deeper = depth < _DEEPEST and self.room > 0
        kind = self.random.choice(["loop", "loop", "if", "scalar", "store", "store"] if deeper else ["store"])
        if kind == "loop":
            self.loop(depth)
        elif kind == "if":
            self.line(depth, f"if {self.condition()}:")
            self.block(depth + 1)
            for word in self.random.choice([[], ["else:"], [f"elif {self.condition()}:", "else:"]]):
                self.line(depth, word)
                self.block(depth + 1)
        elif kind == "scalar":
            self.scalar(depth)
        else:
            sign = self.random.choice(["=", "=", "+=", "-=", "*="])
            self.line(depth, f"{self.element(written=True)} {sign} {self.value(2)}")

    def scalar(self, depth: int) -> None:
        """A new local, or a change of one that is there."""
        if self.scalars and self.random.random() < 0.5:
            self.line(depth, f"{self.random.choice(self.scalars)} += {self.value(1)}")
            return
        self.count += 1
        name = f"s{self.count}"
        first = f"te.cast({self.value(1)}, 'float64')"
        self.line(depth, f"{name} = {self.random.choice([first, '0', '0.5'])}")
        if self.random.random() < 0.5:
            self.line(depth, f"{name} = {name} + {self.value(1)}")
        self.scalars.append(name)

    def loop(self, depth: int) -> None:
        """A loop over a rectangle, a triangle or a trapezoid, in steps of any sign."""
        self.count += 1
        name = self.random.choice([f"i{self.count}", "i", "j"])
        if name in self.loops:
            name = f"i{self.count}"
        ranges = ["range(n)", "range(1, n - 1)", "range(n - 1, -1, -1)", "range(0, n, 2)", "te.range(n - 1, 0, -2)"]
        for outer in self.loops:
            ranges += [f"range({outer})", f"range({outer}, n)", f"range({outer} + 1)", f"range({outer}, -1, -1)"]
            ranges += [f"range(te.max({outer} - 1, 0), min({outer} + 2, n))", f"te.serial({outer} // 2, n)"]
        self.line(depth, f"for {name} in {self.random.choice(ranges)}:")
        self.loops.append(name)
        self.block(depth + 1)
        self.loops.pop()

    def index(self) -> str:
        """An expression with values from 0 below n."""
        choices = ["0", "n - 1", str(SIZE // 2), f"w[{self.random.randint(0, SIZE - 1)}]"]
        for name in self.loops:
            choices += [name, name, f"n - 1 - {name}", f"({name} + 1) % n", f"w[{name}]", f"{name} // 2"]
        return self.random.choice(choices)

    def element(self, written: bool = False) -> str:
        arrays = ["out", "tmp", "f", "g"] + ([] if written else ["h", "w"])
        name = self.random.choice(arrays)
        if name in ("f", "h", "w"):
            return f"{name}[{self.index()}]"
        between = self.random.choice([", ", "]["])
        return f"{name}[{self.index()}{between}{self.index()}]"

    def value(self, depth: int) -> str:
        if depth == 0 or self.random.random() < 0.2:
            atoms = [self.element(), self.element(), "2", "0.5", *self.scalars, *self.loops]
            return self.random.choice(atoms)
        a, b = self.value(depth - 1), self.value(depth - 1)
        forms = [f"{a} + {b}", f"{a} - {b}", f"({a}) * 0.5", f"te.max({a}, {b})", f"abs({a})", f"-({a})"]
        forms += [f"({a} if {self.condition()} else {b})", f"te.if_then_else({self.condition()}, {a}, {b})"]
        return self.random.choice(forms)

    def condition(self) -> str:
        """A comparison of loop variables, of data, or several."""
        tests = [f"{self.element()} > {self.random.randint(-1, 2)}", "n > 2"]
        for name in self.loops:
            tests += [f"{name} < n - 2", f"1 <= {name} < 4", f"{name} % 2 == 0", f"not {name} > 1"]
            tests += [f"{name} != {other}" for other in self.loops]
        first, second = self.random.choice(tests), self.random.choice(tests)
        return self.random.choice([first, first, f"{first} and {second}", f"({first} or {second})"])


def arrays(seed: int) -> dict[str, Any]:
    """Arguments for a script."""
    draw = np.random.default_rng(seed)
    return {
        "n": SIZE,
        "f": draw.integers(-3, 4, SIZE).astype("float64"),
        "g": draw.integers(-3, 4, (SIZE, SIZE)).astype("float64"),
        "h": draw.integers(-3, 4, SIZE).astype("float32"),
        "w": draw.integers(0, SIZE, SIZE).astype("int32"),
    }


@given(st.randoms(use_true_random=False))
def test_random_scripts(random: Random) -> None:
    text = Writer(random).script()
    note(text)
    agree(from_text(text, "script"), **arrays(len(text)))
