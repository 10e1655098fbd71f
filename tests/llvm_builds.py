"""The LLVM modules of tests of results: LLVM takes most of their time to make them fast, which is not what they ask."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Any

from llvmlite import binding as llvm

from tensorlang.target.llvm import engine
from tensorlang.target.llvm.host import Machine
from tests.profiles import is_optimised


def build_quickly(set_: Callable[[Any, str, Any], None] = setattr) -> None:
    """Have three of four compiled as they stand by day, told by their text; assembly is that of optimised ones."""
    compile_object = engine.compile_object

    def quick(text: str, machine: Machine, sources: Sequence[str] = (), called: Collection[str] = ()) -> bytes:
        if sources or is_optimised(text):
            return compile_object(text, machine, sources, called)
        target = _target_machine(machine)
        return bytes(target.emit_object(engine._linked(text, target, sources, called, llvm.create_context())))

    set_(engine, "compile_object", quick)


@cache
def _target_machine(machine: Machine) -> Any:
    target = llvm.Target.from_triple(machine.triple or llvm.get_process_triple())
    options = {"cpu": machine.cpu, "features": machine.features, "reloc": "pic", "codemodel": "default"}
    return target.create_target_machine(**options, opt=0)
