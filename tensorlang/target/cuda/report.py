"""What ptxas says about compiled kernels: registers, spills, shared memory, and the lines that mean slow code."""

from __future__ import annotations

import re

from tensorlang.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class KernelReport:
    """What one kernel takes: registers of a thread, barriers of a block, and bytes of all else.

    `stack`, `spill_stores` and `spill_loads` are bytes of a thread in local memory, `shared` the static shared bytes of
    a block (dynamic ones are the launch's), `constant` the bytes of constant memory, arguments included.
    """

    name: str
    architecture: str = ""
    registers: int = 0
    barriers: int = 0
    stack: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    shared: int = 0
    constant: int = 0

    @property
    def spills(self) -> int:
        """Bytes that a thread stores to or loads from local memory because it has no register for them."""
        return self.spill_stores + self.spill_loads

    def __str__(self) -> str:
        spilled = f", {self.spill_stores} + {self.spill_loads} bytes spilled" if self.spills else ""
        stack = f", {self.stack} bytes of stack" if self.stack else ""
        return f"{self.name}: {self.registers} registers, {self.shared} bytes of static shared memory{stack}{spilled}"


@dataclass(frozen=True, slots=True)
class Report:
    """What the assembler says about the kernels of a module.

    `advice` are its lines with a number C75xx: products of matrices that wait for one another, register counts that
    were ignored. It calls them information, and they mean slow code. `warnings` are the compiler's.
    """

    kernels: tuple[KernelReport, ...] = ()
    advice: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> KernelReport:
        """The report of a kernel; KeyError names the kernels there are."""
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        raise KeyError(f"{name!r}; the report has {', '.join(k.name for k in self.kernels) or 'no kernel'}")

    @property
    def clean(self) -> bool:
        """Whether no kernel spills and nothing was called slow."""
        return not self.advice and not any(k.spills for k in self.kernels)

    def __str__(self) -> str:
        return "\n".join((*map(str, self.kernels), *self.advice, *self.warnings))


def read_report(log: str) -> Report:
    """Read the log of a compilation that ran with `--ptxas-options=-v`."""
    kernels: list[KernelReport] = []
    lines = log.splitlines()
    current: dict[str, str | int] | None = None
    properties_of = ""
    for line in lines:
        if entry := re.search(r"Compiling entry function '(\w+)' for '(\w+)'", line):
            if current is not None:
                kernels.append(_kernel(current))
            current = {"name": entry[1], "architecture": entry[2]}
        elif function := re.search(r"Function properties for (\S+)", line):
            properties_of = function[1]
        elif current is not None and ("stack frame" not in line or properties_of == current["name"]):
            current |= _numbers(line)
    if current is not None:
        kernels.append(_kernel(current))
    advice = tuple(line.strip() for line in lines if re.search(r"\bC75\d\d\b", line))
    warnings = tuple(line.strip() for line in lines if re.search(r"\bwarning\b", line) and line.strip() not in advice)
    return Report(tuple(kernels), advice, warnings)


_NUMBERS = {
    "registers": r"Used (\d+) registers",
    "barriers": r"used (\d+) barriers",
    "stack": r"(\d+) bytes stack frame",
    "spill_stores": r"(\d+) bytes spill stores",
    "spill_loads": r"(\d+) bytes spill loads",
    "shared": r"(\d+) bytes smem",
}
"""Field of a report -> how the log gives it."""


def _numbers(line: str) -> dict[str, int]:
    found = {name: int(match[1]) for name, pattern in _NUMBERS.items() if (match := re.search(pattern, line))}
    constant = [int(n) for n in re.findall(r"(\d+) bytes cmem\[", line)]
    return found | ({"constant": sum(constant)} if constant else {})


def _kernel(values: dict[str, str | int]) -> KernelReport:
    numbers = {name: value for name, value in values.items() if isinstance(value, int)}
    return KernelReport(str(values["name"]), str(values["architecture"]), **numbers)
