"""Instructions of PTX as statements of C++: one row of a table for each family. PTX ISA 8."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import field

from tensorlang.dataclass import dataclass
from tensorlang.errors import ArgumentError
from tensorlang.testing.cuda_emulation.assembly import Instruction, split

_TYPES = {"pred": "bool", "f32": "float", "f64": "double"} | {
    f"{letter}{bits}": f"{'' if letter == 's' else 'u'}int{bits}_t" for letter in "bus" for bits in (8, 16, 32, 64)
}
_KINDS = {"f16", "bf16", "tf32", "f32", "f64", "e4m3", "e5m2"} | {f"{s}{n}" for s in "su" for n in (8, 16, 32, 64)}
_NARROW_BITS = {"f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8}
_SPECIAL = re.compile(r"%{1,2}(tid|ctaid|ntid|nctaid)\.([xyz])")
_ARITHMETIC = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "xor": "{0} ^ {1}",
    "not": "~{0}",
    "neg": "-{0}",
    "shl": "{0} << {1}",
    "shr": "{0} >> {1}",
    "min": "{0} < {1} ? {0} : {1}",
    "max": "{0} > {1} ? {0} : {1}",
    "mov": "{0}",
    "fma": "fma({0}, {1}, {2})",
    "mul": "{0} * {1}",
    "mad": "{0} * {1} + {2}",
}
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_FUNCTIONS = {
    "ex2": "exp2({0})",
    "lg2": "log2({0})",
    "rcp": "1 / {0}",
    "rsqrt": "1 / sqrt({0})",
    "sqrt": "sqrt({0})",
    "tanh": "tanh({0})",
    "sin": "sin({0})",
    "cos": "cos({0})",
}
_NOTHING = ("fence", "membar", "prefetch", "prefetchu", "setmaxnreg", "griddepcontrol", "nanosleep")


@dataclass(slots=True)
class Scope:
    """The registers of one statement of assembly, under names that no other statement has.

    `expressions` are its operands as they are written. `keeps_outputs`: the instruction works on them itself.
    """

    number: int
    expressions: tuple[str, ...]
    declarations: list[str] = field(default_factory=list)
    registers: set[str] = field(default_factory=set)
    keeps_outputs: bool = False

    def operand(self, k: int) -> str:
        """The register of operand %k."""
        return f"emu_{self.number}_{k}"

    def name(self, text: str) -> str:
        """The C++ name of a register or a label of the template."""
        return f"emu_{self.number}_{text.lstrip('%$')}"

    def declare(self, kind: str, names: tuple[str, ...]) -> None:
        """Declare registers of a type of PTX."""
        for name in names:
            self.registers.add(name)
            self.declarations.append(f"[[maybe_unused]] {_type(kind)} {self.name(name)};")

    def place(self, text: str) -> str:
        """A register to write to, or to read."""
        if number := re.fullmatch(r"%(\d+)", text):
            if int(number[1]) >= len(self.expressions):
                raise ArgumentError(f"assembly uses {text} and has {len(self.expressions)} operands")
            return self.operand(int(number[1]))
        if text in self.registers:
            return self.name(text)
        raise ArgumentError(f"assembly uses {text!r}, which is no operand and no register that it declares")

    def value(self, text: str) -> str:
        """A register, a number or a special register, to read."""
        text = text.strip()
        if special := _SPECIAL.fullmatch(text):
            return f"uint32_t(emu::thread_index('{special[1][0]}', '{special[2]}'))"
        if text in ("%laneid", "%%laneid"):
            return "uint32_t(emu::current->rank % 32)"
        if re.fullmatch(r"-?(\d+|0[xX][\da-fA-F]+)U?", text):
            return f"int64_t({text.rstrip('U')})"
        if exact := re.fullmatch(r"0[fF]([\da-fA-F]{8})", text):
            return f"emu::get<float>(0x{exact[1]})"
        return self.place(text)


def translate_instruction(instruction: Instruction, scope: Scope) -> str:
    """Return C++ statements that do what an instruction does; ArgumentError when the emulation does not know it."""
    if instruction.label:
        return f"{scope.name(instruction.label)}:;"
    words = [re.sub(r"::(cta|cluster)$", "", word) for word in instruction.opcode.split(".")]
    if words[0] == "" and words[1] == "reg":
        _declare(instruction, scope)
        return ""
    write = _FAMILIES.get(words[0])
    if write is None:
        raise ArgumentError(f"the emulation does not know the instruction {instruction.opcode}")
    text = write(words, instruction.operands, scope)
    if instruction.guard:
        negated = instruction.guard[0] == "!"
        return f"if ({'!' if negated else ''}{scope.place(instruction.guard.lstrip('!'))}) {{ {text} }}"
    return text


def _declare(instruction: Instruction, scope: Scope) -> None:
    """`.reg .pred p, q`: the type is in front of the first name."""
    kind, _, first = instruction.operands[0].partition(" ")
    scope.declare(kind.lstrip("."), (first.strip(), *instruction.operands[1:]))


def _type(kind: str) -> str:
    if kind not in _TYPES:
        raise ArgumentError(f"the emulation has no registers of type .{kind}")
    return _TYPES[kind]


def _list(text: str) -> list[str]:
    """The parts of `{a, b}` or of a single operand."""
    return [part.strip() for part in split(text.strip()[1:-1], ",")] if text.strip()[:1] == "{" else [text]


def _bits(text: str, scope: Scope) -> str:
    return f"emu::bits({scope.value(text)})"


def _address(text: str, scope: Scope) -> str:
    """`[a]`, `[a + 16]` as a 64-bit number."""
    base, _, offset = text.strip()[1:-1].partition("+")
    return f"{_bits(base, scope)}{f' + {offset.strip()}' if offset else ''}"


def _words(name: str, texts: list[str], scope: Scope) -> str:
    return f"uint32_t {name}[] = {{{', '.join(f'uint32_t({_bits(t, scope)})' for t in texts)}}};"


def _assign(targets: list[str], array: str, scope: Scope) -> str:
    return " ".join(f"emu::put({scope.place(t)}, {array}[{k}]);" for k, t in enumerate(targets))


def _mma(words: list[str], operands: tuple[str, ...], scope: Scope) -> str:
    shape = re.fullmatch(r"m16n8k(\d+)", words[3])
    if shape is None or words[4:6] != ["row", "col"] or len(words) != 10 or not {*words[6:]} <= _KINDS:
        raise ArgumentError(f"the emulation does not know {'.'.join(words)}")
    d, a, b, c = (_list(o) for o in operands)
    kinds = ", ".join(f"emu::{w.upper()}" for w in words[6:])
    _expect(words, (len(a), len(b)), (4, 2) if int(shape[1]) * _width(words[7]) == 256 else (2, 1))
    _expect(words, (len(d), len(c)), tuple(2 if w == "f16" else 4 for w in (words[6], words[9])))
    return (
        f"{{ {_words('emu_a', a, scope)} {_words('emu_b', b, scope)} {_words('emu_c', c, scope)} uint32_t emu_d[4]; "
        f"emu::mma({{16, 8, {shape[1]}, {kinds}}}, emu_d, emu_a, emu_b, emu_c); {_assign(d, 'emu_d', scope)} }}"
    )


def _width(kind: str) -> int:
    return {"f16": 16, "bf16": 16, "tf32": 32}.get(kind, 8)


def _expect(words: list[str], got: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    if got != wanted:
        raise ArgumentError(f"{'.'.join(words)} takes {wanted} registers, got {got}")


def _matrix_rows(words: list[str], operands: tuple[str, ...], scope: Scope) -> str:
    count = next((int(w[1]) for w in words if re.fullmatch(r"x[124]", w)), 0)
    if words[3] != "m8n8" or words[-1] != "b16" or not count:
        raise ArgumentError(f"the emulation does not know {'.'.join(words)}")
    turned = "true" if "trans" in words else "false"
    loads = words[0] == "ldmatrix"
    registers, address = (_list(operands[0]), operands[1]) if loads else (_list(operands[1]), operands[0])
    _expect(words, (len(registers),), (count,))
    call = f"emu::{words[0]}({count}, {turned}, {_address(address, scope)}, emu_r);"
    if loads:
        return f"{{ uint32_t emu_r[4]; {call} {_assign(registers, 'emu_r', scope)} }}"
    return f"{{ {_words('emu_r', registers, scope)} {call} }}"


def _wgmma(words: list[str], operands: tuple[str, ...], scope: Scope) -> str:
    if words[1] in ("fence", "commit_group"):
        return f"emu::wgmma_{words[1].partition('_')[0]}();"
    if words[1] == "wait_group":
        return f"emu::wgmma_wait({scope.value(operands[0])});"
    shape = re.fullmatch(r"m64n(\d+)k(\d+)", words[4])
    if words[1] != "mma_async" or shape is None or not {*words[5:]} <= _KINDS:
        raise ArgumentError(f"the emulation does not know {'.'.join(words)}")
    n, k = int(shape[1]), int(shape[2])
    d, a, accumulates = _list(operands[0]), _list(operands[1]), operands[3]
    _expect(words, (len(d), k), (n // (4 if words[5] == "f16" else 2), 256 // _width(words[6])))
    halves, floats = words[6] in ("f16", "bf16"), words[5] != "s32"
    signs = operands[4:6] if floats else ("1", "1")
    turns = operands[6:] if floats else ()
    wanted = (1 if a[0] != operands[1] else 2) if halves else 0
    _expect(words, (len(operands),), (4 + 2 * floats + wanted,))
    turned_a, turned_b = ("0", *turns) if wanted == 1 else turns if wanted == 2 else ("0", "0")
    scope.keeps_outputs = True
    where = [f"reinterpret_cast<uint32_t*>(&({scope.expressions[int(t[1:])]}))" for t in d]
    registers = len(a) > 1 or operands[1].startswith("{")
    held = ", ".join(f"uint32_t({_bits(t, scope)})" for t in a) if registers else ""
    fields = [
        *(str(n), str(k), *(f"emu::{w.upper()}" for w in words[5:8])),
        *("true" if registers else "false", f"bool({scope.value(accumulates)})"),
        *(f"{scope.value(s)} == -1" for s in signs),
        *(f"{scope.value(t)} != 0" for t in (turned_a, turned_b)),
        *("0" if registers else _bits(operands[1], scope), _bits(operands[2], scope), f"{{{held}}}"),
    ]
    return f"{{ uint32_t* const emu_d[] = {{{', '.join(where)}}}; emu::wgmma({{{', '.join(fields)}}}, emu_d); }}"


def _cp(words: list[str], operands: tuple[str, ...], scope: Scope) -> str:
    match words[2]:
        case "commit_group":
            return "emu::copy_commit();"
        case "wait_group":
            return f"emu::copy_wait({scope.value(operands[0])});"
        case "wait_all":
            return "emu::copy_wait(0, true);"
        case "ca" | "cg":
            size = scope.value(operands[2])
            read = scope.value(operands[3]) if len(operands) > 3 else size
            source = f"reinterpret_cast<const void*>({_address(operands[1], scope)})"
            only16 = words[2] == "cg" and operands[2].strip() != "16"
            if only16:
                raise ArgumentError(f"{'.'.join(words)} copies 16 bytes, got {operands[2]}")
            return f"emu::copy_async({_address(operands[0], scope)}, {source}, {size}, {read});"
        case "bulk":
            return _bulk(words, operands, scope)
    raise ArgumentError(f"the emulation does not know {'.'.join(words)}")


def _bulk(words: list[str], operands: tuple[str, ...], scope: Scope) -> str:
    match words[3:]:
        case ["commit_group"]:
            return "emu::bulk_commit();"
        case ["wait_group"] | ["wait_group", "read"]:
            return f"emu::bulk_wait({scope.value(operands[0])});"
        case ["tensor", rank, "shared", "global", *_, "mbarrier::complete_tx::bytes"]:
            to, source, barrier = operands
            made, image, at = _box(rank, source, scope)
            place, counter = _address(to, scope), _address(barrier, scope)
            return f"{{ {made} emu::bulk_load({place}, {image}, {at}, {rank[0]}, {counter}); }}"
        case ["tensor", rank, "global", "shared", *_, "bulk_group"]:
            made, image, at = _box(rank, operands[0], scope)
            return f"{{ {made} emu::bulk_store({image}, {at}, {rank[0]}, {_address(operands[1], scope)}); }}"
    raise ArgumentError(f"the emulation does not know {'.'.join(words)}")


def _box(rank: str, text: str, scope: Scope) -> tuple[str, str, str]:
    """`[map, {x, y}]`: the coordinates as an array, the map, and the array's name."""
    image, coordinates = split(text.strip()[1:-1], ",")
    places = _list(coordinates.strip())
    if f"{len(places)}d" != rank:
        raise ArgumentError(f"a bulk copy of {rank} has {len(places)} coordinates")
    values = ", ".join(f"int({scope.value(p)})" for p in places)
    return f"int emu_at[] = {{{values}}};", f"reinterpret_cast<const void*>({_bits(image, scope)})", "emu_at"


def _mbarrier(words: list[str], operands: tuple[str, ...], scope: Scope) -> str:
    match words[1]:
        case "init":
            return f"emu::mbarrier_init({_address(operands[0], scope)}, {scope.value(operands[1])});"
        case "inval":
            return ""
        case "expect_tx":
            return f"emu::mbarrier_arrive({_address(operands[0], scope)}, 0, {scope.value(operands[1])}, false);"
        case "arrive" if operands[0] == "_":
            number = scope.value(operands[2]) if len(operands) > 2 else "1"
            expects = words[2] == "expect_tx"
            count, added = ("1", number) if expects else (number, "0")
            return f"emu::mbarrier_arrive({_address(operands[1], scope)}, {count}, {added}, true);"
        case "try_wait" | "test_wait" if words[2] == "parity":
            wait = f"emu::mbarrier_wait({_address(operands[1], scope)}, {scope.value(operands[2])});"
            return f"{wait} {scope.place(operands[0])} = true;"
    raise ArgumentError(f"the emulation does not know {'.'.join(words)}")


def _cvt(words: list[str], operands: tuple[str, ...], scope: Scope) -> str:
    to, source = words[-2], words[-1]
    mode = next((w for w in words[1:-2] if w in ("rn", "rz", "rna", "rni", "rzi", "rmi", "rpi")), "rn")
    letter = "a" if mode == "rna" else mode[1]
    finite = "true" if "satfinite" in words else "false"
    pair = to.endswith("x2")
    kinds = [k.removesuffix("x2") for k in (to, source)]
    kinds = [("u" + k[1:]) if k[0] == "b" and k[1:].isdigit() else k for k in kinds]
    if not {*kinds} <= _KINDS:
        raise ArgumentError(f"the emulation does not know {'.'.join(words)}")
    call = f"emu::convert(emu::{kinds[0].upper()}, emu::{kinds[1].upper()}, {{}}, '{letter}', {finite})"
    if not pair:
        return f"emu::put({scope.place(operands[0])}, {call.format(_bits(operands[1], scope))});"
    if source.endswith("x2"):
        width, whole = _NARROW_BITS[kinds[1]], _bits(operands[1], scope)
        low, high = f"{whole} & {(1 << width) - 1}", f"{whole} >> {width} & {(1 << width) - 1}"
    else:
        high, low = (_bits(o, scope) for o in operands[1:])
    both = f"emu::pair({call.format(low)}, {call.format(high)}, {_NARROW_BITS[kinds[0]]})"
    return f"emu::put({scope.place(operands[0])}, {both});"


def _arithmetic(words: list[str], operands: tuple[str, ...], scope: Scope) -> str:
    if words[0] == "mov" and operands[0].startswith("{"):
        parts = _list(operands[0])
        width = int(words[-1][1:]) // len(parts)
        whole = _bits(operands[1], scope)
        return " ".join(f"emu::put({scope.place(p)}, {whole} >> {k * width});" for k, p in enumerate(parts) if p != "_")
    if words[0] == "mov" and operands[1].startswith("{"):
        parts = _list(operands[1])
        width = int(words[-1][1:]) // len(parts)
        whole = " | ".join(f"(uint64_t({_bits(p, scope)}) << {k * width})" for k, p in enumerate(parts))
        return f"emu::put({scope.place(operands[0])}, {whole});"
    kind = _type(words[-1])
    if {"hi", "wide", "sat"} & {*words}:
        raise ArgumentError(f"the emulation does not know {'.'.join(words)}")
    values = [_typed(kind, o, scope) for o in operands[1:]]
    formula = _ARITHMETIC[words[0]]
    if words[0] in ("min", "max") and kind in ("float", "double"):
        nan = "{0} != {0} || {1} != {1} ? NAN : " if "NaN" in words else ""
        formula = f"{nan}f{words[0]}({{0}}, {{1}})"
    return f"emu::put({scope.place(operands[0])}, emu::bits({kind}({formula.format(*values)})));"


def _typed(kind: str, text: str, scope: Scope) -> str:
    """An operand read as a type: a number converted, a register by its bits."""
    value = scope.value(text)
    return f"{kind}({value})" if value.startswith("int64_t(") else f"emu::get<{kind}>(emu::bits({value}))"


def _setp(words: list[str], operands: tuple[str, ...], scope: Scope) -> str:
    if len(words) != 3 or words[1] not in _COMPARISONS:
        raise ArgumentError(f"the emulation does not know {'.'.join(words)}")
    left, right = (_typed(_type(words[2]), o, scope) for o in operands[1:])
    return f"{scope.place(operands[0])} = {left} {_COMPARISONS[words[1]]} {right};"


def _selp(words: list[str], operands: tuple[str, ...], scope: Scope) -> str:
    left, right = (_typed(_type(words[1]), o, scope) for o in operands[1:3])
    return f"emu::put({scope.place(operands[0])}, emu::bits({scope.place(operands[3])} ? {left} : {right}));"


def _function(words: list[str], operands: tuple[str, ...], scope: Scope) -> str:
    if words[-1] != "f32":
        raise ArgumentError(f"the emulation does not know {'.'.join(words)}")
    value = f"double({_typed('float', operands[1], scope)})"
    formula = _FUNCTIONS[words[0]].format(value)
    return f"emu::put({scope.place(operands[0])}, emu::bits(float({formula})));"


def _barrier(words: list[str], operands: tuple[str, ...], scope: Scope) -> str:
    threads = scope.value(operands[1]) if len(operands) > 1 else "0"
    waits = "true" if "sync" in words else "false"
    if "red" in words:
        raise ArgumentError(f"the emulation does not know {'.'.join(words)}")
    return f"emu::block_barrier({scope.value(operands[0])}, {threads}, 0, {waits});"


def _cvta(words: list[str], operands: tuple[str, ...], scope: Scope) -> str:
    value = _bits(operands[1], scope)
    if "shared" not in words:
        return f"emu::put({scope.place(operands[0])}, {value});"
    if "to" not in words:
        raise ArgumentError(f"the emulation does not know {'.'.join(words)}")
    return f"emu::put({scope.place(operands[0])}, emu::shared_address(reinterpret_cast<const void*>({value})));"


_Writer = Callable[[list[str], tuple[str, ...], Scope], str]
_FAMILIES: dict[str, _Writer] = {
    "mma": _mma,
    "ldmatrix": _matrix_rows,
    "stmatrix": _matrix_rows,
    "wgmma": _wgmma,
    "cp": _cp,
    "mbarrier": _mbarrier,
    "cvt": _cvt,
    "cvta": _cvta,
    "setp": _setp,
    "selp": _selp,
    "bar": _barrier,
    "barrier": _barrier,
    "bra": lambda words, operands, scope: f"goto {scope.name(operands[0])};",
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    **dict.fromkeys(_FUNCTIONS, _function),
    **dict.fromkeys(_NOTHING, lambda words, operands, scope: ""),
}
"""First word of an opcode -> how it is written."""
