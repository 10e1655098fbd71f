"""Reads a tensor of another library in machine code, as if it were a NumPy array.

The reader is compiled when the first such tensor comes, once a process. It fills a record in the place of the object,
with the fields of an array at the same offsets: what checks an array (`entry.py`) checks the record.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from tensorlang.runtime import cpython, exchange
from tensorlang.runtime.cache import cached
from tensorlang.target.llvm.host import Machine, fingerprint
from tensorlang.target.llvm.image import Library

_DLTENSOR = (cpython.FLAGS + 15) // 8 * 8
RECORD_BYTES = _DLTENSOR + 48
_SYMBOL = "tensorlang.read"

_TEXT = f"""
@tensorlang_types = external global i8
@tensorlang_dtypes = external global i8
@tensorlang_requires_grad = external global i8
@tensorlang_false = external global i8
declare void @PyErr_Clear()
declare void @Py_DecRef(ptr)
declare ptr @PyObject_GetAttr(ptr, ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)

define i1 @{_SYMBOL}(ptr %object, ptr %record) {{
entry:
  %self = alloca ptr
  %type.at = getelementptr i8, ptr %object, i64 {cpython.TYPE}
  %type = load ptr, ptr %type.at
  br label %types
types:
  %row = phi ptr [@tensorlang_types, %entry], [%next.row, %other]
  %listed = load ptr, ptr %row
  %none = icmp eq ptr %listed, null
  br i1 %none, label %no, label %compare
compare:
  %same = icmp eq ptr %listed, %type
  br i1 %same, label %describe, label %other
other:
  %next.row = getelementptr i8, ptr %row, i64 24
  br label %types

describe:
  %describe.at = getelementptr i8, ptr %row, i64 8
  %describe.it = load ptr, ptr %describe.at
  %tensor = getelementptr i8, ptr %record, i64 {_DLTENSOR}
  %code = call i32 %describe.it(ptr %object, ptr %tensor)
  %refused = icmp ne i32 %code, 0
  br i1 %refused, label %raised, label %asked
asked:
  %negated.at = getelementptr i8, ptr %row, i64 16
  %negated = load ptr, ptr %negated.at
  %plain = icmp eq ptr %negated, null
  br i1 %plain, label %place, label %gradient
gradient:
  %required = call ptr @PyObject_GetAttr(ptr %object, ptr @tensorlang_requires_grad)
  %lacking = icmp eq ptr %required, null
  br i1 %lacking, label %raised, label %not.required
not.required:
  call void @Py_DecRef(ptr %required)
  %is.free = icmp eq ptr %required, @tensorlang_false
  br i1 %is.free, label %sign, label %no
sign:
  store ptr %object, ptr %self
  %negative = call ptr @PyObject_Vectorcall(ptr %negated, ptr %self, i64 1, ptr null)
  %failed = icmp eq ptr %negative, null
  br i1 %failed, label %raised, label %not.negative
not.negative:
  call void @Py_DecRef(ptr %negative)
  %is.positive = icmp eq ptr %negative, @tensorlang_false
  br i1 %is.positive, label %place, label %no

place:
  %device.at = getelementptr i8, ptr %tensor, i64 8
  %device = load i32, ptr %device.at
  %data.start = load ptr, ptr %tensor
  %offset.at = getelementptr i8, ptr %tensor, i64 40
  %offset = load i64, ptr %offset.at
  %data = getelementptr i8, ptr %data.start, i64 %offset
  %here = icmp eq i32 %device, 1
  %there = icmp ne ptr %data.start, null
  %usable = and i1 %here, %there
  br i1 %usable, label %dtype, label %no

dtype:
  %key.at = getelementptr i8, ptr %tensor, i64 20
  %key = load i32, ptr %key.at
  br label %dtypes
dtypes:
  %held = phi ptr [@tensorlang_dtypes, %dtype], [%next.held, %other.dtype]
  %known = load i32, ptr %held
  %is.it = icmp eq i32 %known, %key
  br i1 %is.it, label %align, label %other.dtype
other.dtype:
  %next.held = getelementptr i8, ptr %held, i64 16
  %last = icmp eq i32 %known, 0
  br i1 %last, label %no, label %dtypes
align:
  %mask.at = getelementptr i8, ptr %held, i64 4
  %mask.32 = load i32, ptr %mask.at
  %mask = zext i32 %mask.32 to i64
  %address = ptrtoint ptr %data to i64
  %rest = and i64 %address, %mask
  %aligned = icmp eq i64 %rest, 0
  br i1 %aligned, label %shape, label %no

shape:
  %rank.at = getelementptr i8, ptr %tensor, i64 16
  %rank = load i32, ptr %rank.at
  %rank.64 = sext i32 %rank to i64
  %shape.at = getelementptr i8, ptr %tensor, i64 24
  %extents = load ptr, ptr %shape.at
  %strides.at = getelementptr i8, ptr %tensor, i64 32
  %strides = load ptr, ptr %strides.at
  %dense = icmp eq ptr %strides, null
  br i1 %dense, label %fill, label %axes
axes:
  %left = phi i64 [%rank.64, %shape], [%axis, %next.axis]
  %expected = phi i64 [1, %shape], [%further, %next.axis]
  %all = icmp eq i64 %left, 0
  br i1 %all, label %fill, label %step
step:
  %axis = sub i64 %left, 1
  %extent.at = getelementptr i64, ptr %extents, i64 %axis
  %extent = load i64, ptr %extent.at
  %stride.at = getelementptr i64, ptr %strides, i64 %axis
  %stride = load i64, ptr %stride.at
  %further = mul i64 %expected, %extent
  %fits = icmp eq i64 %stride, %expected
  %one = icmp eq i64 %extent, 1
  %compact = or i1 %fits, %one
  br i1 %compact, label %next.axis, label %no
next.axis:
  br label %axes

fill:
  %numpy.at = getelementptr i8, ptr %held, i64 8
  %numpy = load ptr, ptr %numpy.at
  %data.to = getelementptr i8, ptr %record, i64 {cpython.DATA}
  store ptr %data, ptr %data.to
  %rank.to = getelementptr i8, ptr %record, i64 {cpython.RANK}
  store i32 %rank, ptr %rank.to
  %shape.to = getelementptr i8, ptr %record, i64 {cpython.DIMENSIONS}
  store ptr %extents, ptr %shape.to
  %dtype.to = getelementptr i8, ptr %record, i64 {cpython.DESCRIPTION}
  store ptr %numpy, ptr %dtype.to
  %flags.to = getelementptr i8, ptr %record, i64 {cpython.FLAGS}
  store i32 {cpython.CONTIGUOUS_ALIGNED | cpython.WRITEABLE}, ptr %flags.to
  ret i1 true
raised:
  call void @PyErr_Clear()
  ret i1 false
no:
  ret i1 false
}}
"""


def learning(checked: Callable[..., Any]) -> Callable[..., Any]:
    """The entry that checks in Python; tensor types that it sees for the first time become known to machine code."""

    def entry(*args: Any, **named: Any) -> Any:
        for value in args:
            if exchange.offers(type(value)) and exchange.learn(type(value)):
                exchange.READER.value = _reader().addresses[_SYMBOL]
        return checked(*args, **named)

    return entry


@cache
def _reader() -> Library:
    """The reader, loaded: it stays for as long as the process does."""
    from tensorlang.target.llvm import engine

    machine = Machine("", "", "")
    known = cpython.addresses() | exchange.addresses() | exchange.tables()
    imports = {name: address for name, address in known.items() if f"@{name}" in _TEXT}

    def load(code: bytes) -> Library:
        return engine.load(code, [_SYMBOL], imports)

    return cached((_TEXT, fingerprint(machine)), lambda: engine.compile_object(_TEXT, machine), load)
