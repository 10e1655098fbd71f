"""Reads and writes of one place, or of one place per lane."""

from __future__ import annotations

from dataclasses import dataclass

from tensorlang import dtypes
from tensorlang.errors import InternalError
from tensorlang.target.llvm.arithmetic import binary, cast, constant, extract, overload, splat
from tensorlang.target.llvm.text import INDEX, Function, Value, literal, memory_type, vector_type

_WIDEST_STRIDE = 4
"""Up to this distance between lanes, one wide load and a shuffle beat a load per lane."""


@dataclass(frozen=True, slots=True)
class Place:
    """Elements of `dtype` in memory, `width` lanes of them (0: one element).

    `step`: elements from one lane's to the next (0: all lanes share one), counted from `pointer`. Where `step`
    is None, `offsets` holds each lane's distance from `pointer`: one value per lane, or a vector of them.
    """

    dtype: str
    pointer: str
    width: int = 0
    step: Value | None = None
    offsets: tuple[Value, ...] = ()

    @property
    def element(self) -> str:
        """The LLVM type of an element in memory."""
        return memory_type(self.dtype)

    @property
    def stored(self) -> str:
        """The dtype in memory: a bool is stored as uint8."""
        return "uint8" if self.dtype == "bool" else self.dtype

    @property
    def align(self) -> int:
        """The alignment in bytes that every element has."""
        return dtypes.info(self.dtype).bytes


def load(fn: Function, place: Place, mask: Value | None) -> Value:
    """Read a place; lanes that `mask` excludes touch no memory and have an unspecified value."""
    step = None if place.step is None else place.step.integer
    if place.width == 0 or step == 0:
        raw = _load_one(fn, place) if mask is None else _load_one_if_any(fn, place, mask)
    elif step == 1:
        raw = _load_row(fn, place, mask)
    elif mask is not None:
        raw = _masked_gather(fn, place, mask)
    elif step is not None and (step == -1 or 1 < step <= _WIDEST_STRIDE):
        raw = _load_wide(fn, place, step)
    else:
        raw = _load_each(fn, place)
    return cast(fn, raw, place.dtype)


def store(fn: Function, place: Place, value: Value, mask: Value | None) -> None:
    """Write a value to a place, except in the lanes that `mask` excludes."""
    if place.width:
        value = splat(fn, value, place.width)
    if place.dtype == "bool":
        value = cast(fn, value, "uint8")
    if not place.width:
        fn.do(f"store {value.typed}, ptr {place.pointer}, align {place.align}")
    elif place.step is not None and place.step.integer == 1:
        _store_row(fn, place, value, mask)
    elif mask is not None:
        name = f"llvm.masked.scatter.{overload(value)}.v{place.width}p0"
        types = f"{value.type}, <{place.width} x ptr>, <{place.width} x i1>"
        callee = fn.module.declare(name, "void", types)
        pointers = f"<{place.width} x ptr> align {place.align} {_pointer_vector(fn, place)}"
        fn.do(f"call void {callee}({value.typed}, {pointers}, {mask.typed})")
    elif place.step is not None and place.step.integer == 0:
        # Serial order: the last lane wins.
        last = extract(fn, value, place.width - 1)
        fn.do(f"store {last.typed}, ptr {place.pointer}, align {place.align}")
    else:
        for lane, pointer in enumerate(_pointers(fn, place)):
            one = extract(fn, value, lane)
            fn.do(f"store {one.typed}, ptr {pointer}, align {place.align}")


def any_lane(fn: Function, mask: Value) -> Value:
    """Whether a mask has a lane."""
    return fn.call(f"llvm.vector.reduce.or.v{mask.lanes}i1", [mask], "bool")


def _load_one(fn: Function, place: Place) -> Value:
    return fn.value(f"load {place.element}, ptr {place.pointer}, align {place.align}", place.stored)


def _load_one_if_any(fn: Function, place: Place, mask: Value) -> Value:
    """A read shared by all lanes, left out when no lane wants it."""
    read, join, before = fn.fresh("read"), fn.fresh("join"), fn.block
    fn.branch(any_lane(fn, mask), read, join)
    fn.start(read)
    value = _load_one(fn, place)
    fn.jump(join)
    fn.start(join)
    return fn.value(f"phi {value.type} [{value.text}, %{read}], [poison, %{before}]", place.stored)


def _load_row(fn: Function, place: Place, mask: Value | None) -> Value:
    row = Value("", place.stored, place.width)
    if mask is None:
        return fn.value(f"load {row.type}, ptr {place.pointer}, align {place.align}", place.stored, place.width)
    mask_type = f"<{place.width} x i1>"
    callee = fn.module.declare(f"llvm.masked.load.{overload(row)}.p0", row.type, f"ptr, {mask_type}, {row.type}")
    arguments = f"ptr align {place.align} {place.pointer}, {mask.typed}, {row.type} zeroinitializer"
    return fn.value(f"call {row.type} {callee}({arguments})", place.stored, place.width)


def _store_row(fn: Function, place: Place, value: Value, mask: Value | None) -> None:
    if mask is None:
        fn.do(f"store {value.typed}, ptr {place.pointer}, align {place.align}")
        return
    callee = fn.module.declare(
        f"llvm.masked.store.{overload(value)}.p0", "void", f"{value.type}, ptr, <{place.width} x i1>"
    )
    fn.do(f"call void {callee}({value.typed}, ptr align {place.align} {place.pointer}, {mask.typed})")


def _load_wide(fn: Function, place: Place, step: int) -> Value:
    """Read everything between the first and the last element, and keep every `step`-th."""
    span = (place.width - 1) * abs(step) + 1
    pointer = place.pointer
    if step < 0:
        pointer = fn.op(f"getelementptr {place.element}, ptr {pointer}, i64 {(place.width - 1) * step}")
    wide = vector_type(place.element, span)
    whole = fn.op(f"load {wide}, ptr {pointer}, align {place.align}")
    first = 0 if step > 0 else span - 1
    picks = ", ".join(f"i32 {first + lane * step}" for lane in range(place.width))
    text = f"shufflevector {wide} {whole}, {wide} poison, <{place.width} x i32> <{picks}>"
    return fn.value(text, place.stored, place.width)


def _load_each(fn: Function, place: Place) -> Value:
    result = Value("poison", place.stored, place.width)
    for lane, pointer in enumerate(_pointers(fn, place)):
        one = fn.op(f"load {place.element}, ptr {pointer}, align {place.align}")
        text = f"insertelement {result.typed}, {place.element} {one}, i64 {lane}"
        result = fn.value(text, place.stored, place.width)
    return result


def _masked_gather(fn: Function, place: Place, mask: Value) -> Value:
    row = Value("", place.stored, place.width)
    pointers, mask_type = f"<{place.width} x ptr>", f"<{place.width} x i1>"
    name = f"llvm.masked.gather.{overload(row)}.v{place.width}p0"
    callee = fn.module.declare(name, row.type, f"{pointers}, {mask_type}, {row.type}")
    where = f"{pointers} align {place.align} {_pointer_vector(fn, place)}"
    text = f"call {row.type} {callee}({where}, {mask.typed}, {row.type} zeroinitializer)"
    return fn.value(text, place.stored, place.width)


def lane_numbers(lanes: int) -> Value:
    """The vector 0, 1, 2, ... of index values."""
    return Value(f"<{', '.join(f'i64 {lane}' for lane in range(lanes))}>", INDEX, lanes)


def _pointers(fn: Function, place: Place) -> list[str]:
    """The address of each lane."""
    if place.step is not None:
        offsets = [binary(fn, "mul", place.step, literal(lane, INDEX)) for lane in range(place.width)]
    elif len(place.offsets) == place.width and not place.offsets[0].lanes:
        offsets = list(place.offsets)
    else:
        offsets = [extract(fn, place.offsets[0], lane) for lane in range(place.width)]
    return [fn.op(f"getelementptr {place.element}, ptr {place.pointer}, {o.typed}") for o in offsets]


def _pointer_vector(fn: Function, place: Place) -> str:
    """The addresses of all lanes as one vector."""
    if place.step is not None:
        numbers = lane_numbers(place.width)
        offsets = binary(fn, "mul", numbers, splat(fn, place.step, place.width))
    elif place.offsets[0].lanes:
        offsets = place.offsets[0]
    else:
        offsets = constant(0, Value("", INDEX, place.width))
        for lane, offset in enumerate(place.offsets):
            offsets = fn.value(f"insertelement {offsets.typed}, {offset.typed}, i64 {lane}", INDEX, place.width)
    if offsets.lanes != place.width:
        raise InternalError("a vector of addresses of the wrong width")
    return fn.op(f"getelementptr {place.element}, ptr {place.pointer}, {offsets.typed}")
