"""Objects that are mapped without LLVM do what they do when LLVM links them; what is beyond that is left to LLVM."""

from __future__ import annotations

import ctypes
import math
import platform
import sys
from pathlib import Path

import pytest

from tensorlang.errors import InternalError
from tensorlang.target.llvm import engine
from tensorlang.target.llvm.host import Machine
from tensorlang.target.llvm.image import image_of, load_image

HOST = Machine("", "", "")
needs_images = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="images are for Linux on x86-64"
)

ALL = """
@outside = external global i64
@table = private constant [4 x double] [double 0.5, double 1.5, double 2.5, double 3.5]
declare double @cos(double)
declare double @given(double)
define internal double @quarter(double %x) noinline { %y = fmul double %x, 2.5e-1
  ret double %y }
define double @plain(double %x, i64 %k) {
  %at = getelementptr [4 x double], ptr @table, i64 0, i64 %k
  %held = load double, ptr %at
  %y = call double @quarter(double %x)
  %z = fadd double %y, %held
  ret double %z }
define double @calls(double %x) nounwind {
  %a = call double @cos(double %x)
  %b = call double @given(double %a)
  ret double %b }
define i64 @reads() { %v = load i64, ptr @outside
  ret i64 %v }
define ptr @tells() { ret ptr @plain }
define i64 @chooses(i64 %k) nounwind {
  switch i64 %k, label %other [i64 0, label %a
    i64 1, label %b
    i64 2, label %c
    i64 3, label %d
    i64 4, label %e]
a: call void @note(i64 7)
  ret i64 10
b: call void @note(i64 5)
  ret i64 31
c: call void @note(i64 3)
  ret i64 52
d: call void @note(i64 2)
  ret i64 73
e: call void @note(i64 1)
  ret i64 1
other: ret i64 -1 }
declare void @note(i64)
"""
NAMES = ("plain", "calls", "reads", "tells", "chooses")


@needs_images
def test_an_image_does_what_linked_code_does(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    cell = ctypes.c_int64(1234)
    given = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(lambda x: x + 100)
    note = ctypes.CFUNCTYPE(None, ctypes.c_int64)(seen.append)
    outside = {name: ctypes.cast(f, ctypes.c_void_p).value or 0 for name, f in (("given", given), ("note", note))}
    outside["outside"] = ctypes.addressof(cell)
    code = engine.compile_library([engine.Part(ALL)], HOST, ())
    image = image_of(code)
    assert image is not None and {"cos", "given", "note", "outside"} == set(image.slots)
    libraries = [load_image(image, NAMES, outside)]
    monkeypatch.setattr(engine, "image_of", lambda code: None)
    libraries.append(engine.load(code, NAMES, outside))
    double, whole = ctypes.c_double, ctypes.c_int64
    for library in libraries:
        at = library.addresses
        assert ctypes.CFUNCTYPE(double, double, whole)(at["plain"])(8.0, 2) == 4.5
        assert ctypes.CFUNCTYPE(double, double)(at["calls"])(0.5) == math.cos(0.5) + 100
        assert ctypes.CFUNCTYPE(whole)(at["reads"])() == 1234
        assert ctypes.CFUNCTYPE(whole)(at["tells"])() == at["plain"]
        assert [ctypes.CFUNCTYPE(whole, whole)(at["chooses"])(k) for k in range(-1, 6)] == [-1, 10, 31, 52, 73, 1, -1]
    assert seen == [7, 5, 3, 2, 1] * 2


@needs_images
def test_nobody_can_write_code() -> None:
    image = image_of(engine.compile_library([engine.Part(ALL)], HOST, ()))
    assert image is not None
    library = load_image(image, NAMES, dict.fromkeys(image.slots, 0))
    begin = library.addresses["plain"] - image.symbols["plain"]
    rights: dict[int, str] = {}
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(word, 16) for word in line.split()[0].split("-"))
        rights |= {place: line.split()[1] for place in (begin, begin + image.constants) if first <= place < last}
    assert rights == {begin: "r-xp", begin + image.constants: "r--p"}


OTHERS = {
    "data": "@held = global i64 5\ndefine i64 @f() {\n  %v = load i64, ptr @held\n  ret i64 %v\n}",
    "tables of addresses": "@held = constant ptr @f\ndefine i64 @f() {\n  ret i64 5\n}",
    "unwinding": "define i64 @f() uwtable {\n  ret i64 5\n}",
    "what need not be there": "declare extern_weak i64 @nowhere()\ndefine i64 @f() {\n"
    "  %is = icmp eq ptr @nowhere, null\n  %n = select i1 %is, i64 5, i64 6\n  ret i64 %n\n}",
}


@needs_images
@pytest.mark.parametrize("what", OTHERS)
def test_what_needs_more_is_linked_by_llvm(what: str) -> None:
    code = engine.compile_library([engine.Part(OTHERS[what])], HOST, ())
    assert image_of(code) is None
    library = engine.load(code, ["f"], {})
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(library.addresses["f"])() == 5


def test_objects_of_other_machines_have_no_image() -> None:
    text = "define i64 @f() {\n  ret i64 5\n}"
    for triple in ("aarch64-unknown-linux-gnu", "x86_64-apple-macosx"):
        assert image_of(engine.compile_library([engine.Part(text)], Machine(triple, "", ""), ())) is None


def test_a_function_that_nobody_has() -> None:
    call = "  %n = call i64 @nobody.has.this()\n  ret i64 %n\n"
    text = f"declare i64 @nobody.has.this()\ndefine i64 @f() nounwind {{\n{call}}}"
    code = engine.compile_library([engine.Part(text)], HOST, ())
    with pytest.raises(InternalError, match=r"does not link: .*nobody\.has\.this"):
        engine.load(code, ["f"], {})
