"""Reads and writes of one place, or of one place per lane."""

from __future__ import annotations

from dataclasses import replace

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError
from tensorlang.target.detect import target_cpu
from tensorlang.target.llvm.arithmetic import binary, cast, constant, extract, overload, splat
from tensorlang.target.llvm.text import INDEX, Function, Value, literal, memory_type

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
    elif step is not None and (step == -1 or 1 < step <= _WIDEST_STRIDE):
        raw = _load_wide(fn, place, step, mask)
    elif mask is not None:
        raw = _masked_gather(fn, place, mask)
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
        _write(fn, place, value)
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
        _write(fn, place, extract(fn, value, place.width - 1))
    else:
        for lane, pointer in enumerate(_pointers(fn, place)):
            _write(fn, replace(place, pointer=pointer), extract(fn, value, lane))


def stream(fn: Function, place: Place, value: Value, mask: Value | None) -> None:
    """Write a value past the caches where the place is a row of whole blocks; as `store` does elsewhere.

    x86 takes a register where it is aligned to its size, or its quarters of 16 bytes, which NumPy's arrays are.
    """
    size = dtypes.info(place.dtype).bytes * place.width
    row = place.step is not None and place.step.integer == 1
    if mask is not None or not row or place.dtype == "bool" or size % 16 or size & (size - 1):
        store(fn, place, value, mask)
        return
    value = splat(fn, value, place.width)
    fn.streams = True
    hint = fn.module.flag("nontemporal")
    if target_cpu(fn.target).architecture != "x86_64":
        fn.do(f"store {value.typed}, ptr {place.pointer}, align {place.align}{hint}")
        return
    address = fn.op(f"ptrtoint ptr {place.pointer} to i64")
    low = fn.op(f"and i64 {address}, {size - 1}")
    join = fn.fresh("join")
    for align in dict.fromkeys((size, 16)):
        fits = fn.value(f"icmp eq i64 {fn.op(f'and i64 {low}, {align - 1}')}, 0", "bool")
        then, orelse = fn.fresh("aligned"), fn.fresh("less")
        fn.branch(fits, then, orelse)
        fn.start(then)
        fn.do(f"store {value.typed}, ptr {place.pointer}, align {align}{hint}")
        fn.jump(join)
        fn.start(orelse)
    fn.do(f"store {value.typed}, ptr {place.pointer}, align {place.align}")
    fn.jump(join)
    fn.start(join)


def finish_streams(fn: Function) -> None:
    """Make what was written past the caches visible to other threads before the function returns."""
    if fn.streams and target_cpu(fn.target).architecture == "x86_64":
        fn.do(f"call void {fn.module.declare('llvm.x86.sse.sfence', 'void', '')}()")


def any_lane(fn: Function, mask: Value) -> Value:
    """Whether a mask has a lane."""
    return fn.call(f"llvm.vector.reduce.or.v{mask.lanes}i1", [mask], "bool")


def _load_one(fn: Function, place: Place) -> Value:
    return fn.read(f"load {place.element}, ptr {place.pointer}, align {place.align}", place.pointer, place.stored)


def _write(fn: Function, place: Place, value: Value) -> None:
    fn.write(f"store {value.typed}, ptr {place.pointer}, align {place.align}", place.pointer)


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
        text = f"load {row.type}, ptr {place.pointer}, align {place.align}"
        return fn.read(text, place.pointer, place.stored, place.width)
    mask_type = f"<{place.width} x i1>"
    callee = fn.module.declare(f"llvm.masked.load.{overload(row)}.p0", row.type, f"ptr, {mask_type}, {row.type}")
    arguments = f"ptr align {place.align} {place.pointer}, {mask.typed}, {row.type} zeroinitializer"
    return fn.read(f"call {row.type} {callee}({arguments})", place.pointer, place.stored, place.width)


def _store_row(fn: Function, place: Place, value: Value, mask: Value | None) -> None:
    if mask is None:
        _write(fn, place, value)
        return
    value = _kept_apart(fn, value)
    callee = fn.module.declare(
        f"llvm.masked.store.{overload(value)}.p0", "void", f"{value.type}, ptr, <{place.width} x i1>"
    )
    where = f"ptr align {place.align} {place.pointer}"
    fn.write(f"call void {callee}({value.typed}, {where}, {mask.typed})", place.pointer)


def _kept_apart(fn: Function, value: Value) -> Value:
    """Integers that were truncated before a masked store, which LLVM must not make one instruction with it.

    Where the mask turns out to have one lane, LLVM 22 stores that lane as wide as it was before, over its neighbours.
    Its `arithmetic.fence` is no instruction.
    """
    info = dtypes.info(value.dtype)
    integers = info.is_integer or info.is_extension
    if not integers or info.bits == 64 or "avx512f" not in target_cpu(fn.target).features:
        return value
    lanes = 1 << (value.lanes - 1).bit_length()
    whole = shuffle(fn, value, value, [*range(value.lanes), *[-1] * (lanes - value.lanes)])
    words = info.bits * lanes // 32
    one = ("f32", "float") if words else ("f16", "half")
    name, type_ = (f"v{words}f32", f"<{words} x float>") if words > 1 else one
    fence = fn.module.declare(f"llvm.arithmetic.fence.{name}", type_, type_)
    fenced = fn.op(f"call {type_} {fence}({type_} {fn.op(f'bitcast {whole.typed} to {type_}')})")
    kept = fn.value(f"bitcast {type_} {fenced} to {whole.type}", value.dtype, lanes)
    return shuffle(fn, kept, kept, list(range(value.lanes)))


def _load_wide(fn: Function, place: Place, step: int, mask: Value | None) -> Value:
    """Read all from the first to the last element, a vector at a time, and keep every `step`-th; of a mask those alone.

    The last vector ends with the last element: nothing beyond it is touched.
    """
    width, span = place.width, (place.width - 1) * abs(step) + 1
    lowest = (width - 1) * step if step < 0 else 0
    elements = [lane * step - lowest for lane in range(width)]
    result = Value("poison", place.stored, width)
    for number in range(-(-span // width)):
        start = min(number * width, span - width)
        inside = {e - start: lane for lane, e in enumerate(elements) if number * width <= e < (number + 1) * width}
        pointer = place.pointer
        if lowest + start:
            pointer = fn.element(place.element, pointer, lowest + start)
        wanted = None
        if mask is not None:
            none = Value("zeroinitializer", "bool", width)
            wanted = shuffle(fn, mask, none, [inside.get(at, width) for at in range(width)])
        part = _load_row(fn, replace(place, pointer=pointer), wanted)
        places = {lane: width + at for at, lane in inside.items()}
        result = shuffle(fn, result, part, [places.get(lane, lane) for lane in range(width)])
    return result


def shuffle(fn: Function, a: Value, b: Value, picks: list[int]) -> Value:
    """Lanes of two vectors by number, -1 for any."""
    if picks == list(range(a.lanes)) or (a.text == "poison" and b.text == "poison"):
        return replace(a, lanes=len(picks))
    chosen = ", ".join(f"i32 {'poison' if pick < 0 else pick}" for pick in picks)
    return fn.value(f"shufflevector {a.typed}, {b.typed}, <{len(picks)} x i32> <{chosen}>", a.dtype, len(picks))


def _load_each(fn: Function, place: Place) -> Value:
    result = Value("poison", place.stored, place.width)
    for lane, pointer in enumerate(_pointers(fn, place)):
        one = _load_one(fn, replace(place, pointer=pointer))
        text = f"insertelement {result.typed}, {one.typed}, i64 {lane}"
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
    return [fn.element(place.element, place.pointer, o.text) for o in offsets]


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
