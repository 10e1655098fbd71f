"""Small things that functions of a library are written with: refusals, words in memory, constant texts."""

from __future__ import annotations

import hashlib
import json

from tensorlang.target.llvm.text import INDEX, Function, Module, Value


def refuse(fn: Function, wrong: Value, result: str) -> None:
    """Append a return of `result` (its type and text) where a condition holds."""
    stop, go_on = fn.fresh("refused"), fn.fresh("fine")
    fn.branch(wrong, stop, go_on)
    fn.start(stop)
    fn.do(f"ret {result}")
    fn.start(go_on)


def compare(fn: Function, relation: str, type_: str, a: str, b: str) -> Value:
    """Append a comparison of integers or pointers as LLVM's icmp names it."""
    return fn.value(f"icmp {relation} {type_} {a}, {b}", "bool")


def load(fn: Function, base: str, offset: int, type_: str) -> str:
    """Append a read of memory that the caller owns."""
    return fn.op(f"load {type_}, ptr {fn.field(base, offset)}, align 4")


def store(fn: Function, base: str, offset: int, typed: str) -> None:
    """Append a write of a word to a block of our own."""
    fn.do(f"store {typed}, ptr {fn.field(base, offset)}, align 4")


def word(fn: Function, base: str, offset: int, type_: str) -> Value:
    """Append a read of an integer of 32 or 64 bits, as an index."""
    found = load(fn, base, offset, type_)
    return Value(found if type_ == "i64" else fn.op(f"sext {type_} {found} to i64"), INDEX)


def text(module: Module, words: str) -> str:
    """The pointer to a constant text that ends with a NUL."""
    held = words.encode()
    name = f"text.{hashlib.sha256(held).hexdigest()[:16]}"
    spelt = "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in held)
    constant = f'[{len(held) + 1} x i8] c"{spelt}\\00"'
    module.declarations.setdefault(name, f"@{name} = internal unnamed_addr constant {constant}, align 1")
    return f"@{name}"


def as_json(data: object) -> str:
    """Data as JSON in one line."""
    return json.dumps(data, separators=(",", ":"))
