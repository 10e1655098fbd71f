"""Does the memory of a tile look as an intrinsic declares: strides, alignment, scope?"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from tensorlang import dtypes
from tensorlang.ir.affine import Affine, affine
from tensorlang.ir.expr import Binary, Buffer, Const, Expr, Var, binary, rewrite, same, to_text
from tensorlang.ir.fragment import Fragment
from tensorlang.ir.stmt import INDEX
from tensorlang.ir.swizzle import ATOM_ROWS, SPANS, panel_rows
from tensorlang.schedule.axis_range import constant, simple
from tensorlang.schedule.derive.plans import BufferPlan, Derived
from tensorlang.schedule.tiles.match import Mismatch, TileView
from tensorlang.te.intrinsic import TensorIntrin
from tensorlang.te.tile_buffer import TileBuffer

_OWN_ALIGNMENT = 64
"""Bytes: where the scratch arrays of a kernel begin. An argument is only aligned to its elements."""


def check_layout(derived: Derived, intrin: TensorIntrin, views: Mapping[str, TileView]) -> None:
    """Raise Mismatch unless every tile has the declared strides, alignment and scope."""
    variables: dict[str, Expr] = {}
    for name, view in views.items():
        declared, plan = intrin.buffers[name], derived.plans[view.array]
        folded = [d for d in view.dims if d >= 0 and _wraps(plan, view, d, declared.shape[view.dims.index(d)])]
        if folded:
            raise Mismatch(f"{view.array} is folded along dimension {folded[0]}, where a tile would wrap around")
        if declared.scope and declared.scope != plan.buffer.scope:
            raise Mismatch(
                f"{view.array} lives in {plan.buffer.scope} memory, the intrinsic takes {declared.name} from "
                f"{declared.scope}",
                f"copy it there: cache_read or cache_write with scope {declared.scope!r}",
            )
        if declared.fragment is not None:
            _check_fragment(declared, declared.fragment, plan, view)
            continue
        if plan.buffer.scope == "warp":
            raise Mismatch(
                f"{view.array} lives in the registers of a warp, and the intrinsic wants {declared.name} in memory",
                f"copy it there: cache_read or cache_write with scope {declared.scope or 'shared'!r}",
            )
        if _is_in_panel(declared, plan):
            _check_panel(declared, plan, view)
            continue
        _check_strides(declared, plan, view, variables)
        _check_offset(declared, plan, view, each_row=intrin.lanes > 0 and isinstance(declared.strides[0], Var))
        if declared.swizzled and not plan.buffer.swizzled:
            raise Mismatch(
                f"the intrinsic takes {declared.name} in swizzled rows, and those of {view.array} are not",
                f"s[{view.array!r}].swizzle({'panels=True' if declared.panels else ''}) first",
            )
        if declared.panels:
            _check_panels(declared, plan, view)


def _wraps(plan: BufferPlan, view: TileView, d: int, extent: int) -> bool:
    """Whether a tile goes around the end of a folded dimension: unless it begins where that does, and ends before."""
    modulus = plan.moduli[d + leading(plan) - len(plan.lanes)] if plan.moduli else 0
    if not modulus:
        return False
    form = _distance(view.index[d], plan.base[d])
    whole = form is not None and all(factor % modulus == 0 for factor in form.values())
    return not (whole and view.steps[view.dims.index(d)] * (extent - 1) < modulus)


def _check_panels(declared: TileBuffer, plan: BufferPlan, view: TileView) -> None:
    """A tile in panels has all rows of its array, which lies in panels too, and goes along its last two dimensions."""
    rank, rows = len(plan.buffer.shape) - leading(plan), panel_rows(plan.buffer)
    if view.dims != (rank - 2, rank - 1) or view.steps != (1, 1) or rows != declared.shape[0]:
        raise Mismatch(
            f"the intrinsic takes {declared.name} as {declared.shape[0]} rows in panels of 128 bytes, and "
            f"{plan.buffer} has {'none' if rows is None else rows}",
            f"s[{view.array!r}].swizzle(panels=True), where a tile has {declared.shape[0]} rows",
        )


def _is_in_panel(declared: TileBuffer, plan: BufferPlan) -> bool:
    """Whether rows of 128 bytes, swizzled, are wanted of an array that has such in panels."""
    return declared.swizzled and not declared.panels and plan.buffer.panels and panel_rows(plan.buffer) is not None


def _check_panel(declared: TileBuffer, plan: BufferPlan, view: TileView) -> None:
    """A tile of whole rows lies in one panel of its array, from a multiple of eight of them on."""
    rank, row = len(plan.buffer.shape) - leading(plan), SPANS[-1] // dtypes.info(declared.dtype).bytes
    places = zip(view.index[-2:], plan.base[-2:], (ATOM_ROWS, row), strict=True)
    forms = [(_distance(index, base), apart) for index, base, apart in places]
    whole = all(form is not None and all(n % apart == 0 for n in form.values()) for form, apart in forms)
    if view.dims != (rank - 2, rank - 1) or view.steps != (1, 1) or declared.shape[1] != row or not whole:
        raise Mismatch(
            f"the intrinsic takes {declared.name} as rows of {row} in one panel of {plan.buffer}, from a multiple of "
            f"{ATOM_ROWS} of them on, and the tile begins at [{', '.join(map(str, view.index))}]",
            f"split by multiples of {ATOM_ROWS} and {row}",
        )


def array_strides(buffer: Buffer) -> list[Expr]:
    """The distance in elements between neighbours of each dimension."""
    strides: list[Expr] = []
    step: Expr = Const(1, INDEX)
    for extent in reversed(buffer.shape):
        strides.insert(0, step)
        step = simple(binary("mul", step, extent))
    return strides


def leading(plan: BufferPlan) -> int:
    """How many dimensions a buffer has in front of those of its array: for threads, copies, and the tile of two."""
    return len(plan.lanes) + len(plan.copies) + (plan.tile is not None)


def _tile_strides(plan: BufferPlan, view: TileView) -> list[Expr | None]:
    """The distance in elements between neighbours of each dimension of a tile; None for one that has no neighbours."""
    own = array_strides(plan.buffer)[leading(plan) :]
    pairs = zip(view.dims, view.steps, strict=True)
    return [None if d < 0 else simple(binary("mul", own[d], Const(n, INDEX))) for d, n in pairs]


def _check_strides(declared: TileBuffer, plan: BufferPlan, view: TileView, variables: dict[str, Expr]) -> None:
    for k, (wanted, have) in enumerate(zip(declared.strides, _tile_strides(plan, view), strict=True)):
        if have is None:
            continue
        if isinstance(wanted, Var):
            known = variables.setdefault(wanted.name, have)
            if not same(known, have):
                raise Mismatch(f"the stride {wanted.name} of the intrinsic would be {known} and {have}")
        elif not same(wanted, have):
            first = () if plan.is_argument else (f"s[{view.array!r}].compute_at(...) first, if it is to hold one tile",)
            raise Mismatch(
                f"neighbours along dimension {k} of the tile of {view.array} are {have} elements apart, the intrinsic "
                f"declares {wanted} for {declared.name}",
                *first,
                f"pack {view.array} so that the tile is contiguous (cache_read, transform_layout)",
                f"or declare {declared.name} with strides=[te.var('stride'), ...] in te.decl_buffer",
            )


def _distance(index: Expr, base: Expr) -> Affine | None:
    """`index - base` as an affine form, in which each quotient and remainder is a variable of its own."""

    def rule(node: Expr) -> Expr | None:
        match node:
            case Binary(op="floordiv" | "floormod"):
                return Var(to_text(node), node.dtype)
        return None

    return affine(rewrite(simple(binary("sub", index, base)), rule))


def _check_fragment(declared: TileBuffer, fragment: Fragment, plan: BufferPlan, view: TileView) -> None:
    """A tile in registers is made of whole fragments of its array, which lie next to each other.

    Dimensions in front of the last two count arrays of fragments.
    """
    own = plan.buffer.shape[leading(plan) :]
    sides, shape = (fragment.rows, fragment.columns), [constant(extent) for extent in own[-2:]]
    if any(step != 1 for step in view.steps):
        raise Mismatch(
            f"the tile takes only one of {max(view.steps)} elements along a dimension of {plan.buffer}, and "
            f"{declared.name} is of neighbours, as registers of a warp hold them",
            "split the axis so that the loops of the tile are the inner ones",
        )
    if len(own) < 2 or view.dims != (len(own) - 2, len(own) - 1):
        dims = ", ".join(map(str, view.dims))
        raise Mismatch(
            f"the tile goes along dimensions ({dims}) of {plan.buffer}, and registers of a warp hold arrays along "
            f"the last two, in the order that the intrinsic has for {declared.name}",
            "use the form of the intrinsic whose operand is turned (te.intrin(... '.bt'))",
        )
    for side, extent, index, base in zip(sides, shape, view.index[-2:], plan.base[-2:], strict=True):
        form = _distance(index, base)
        if extent is None or extent % side or form is None or any(factor % side for factor in form.values()):
            raise Mismatch(
                f"{plan.buffer} is in registers, and its tile begins at {index}: whole fragments of "
                f"{fragment.rows} x {fragment.columns} are wanted",
                f"split by multiples of {fragment.rows} and {fragment.columns} at the loop where it is computed",
            )
    across = 1 if fragment.down else 0  # the fragments of the array follow each other along the other one
    if declared.shape[across] > sides[across]:
        raise Mismatch(f"the fragments of {declared.name} do not lie next to each other in {plan.buffer}")


def _check_offset(declared: TileBuffer, plan: BufferPlan, view: TileView, each_row: bool = False) -> None:
    """The first element lies at a multiple of what is declared, for all values of the loops around.

    `each_row`: each thread begins at a row of its own, so that all rows do.
    """
    size = dtypes.info(declared.dtype).bytes
    if declared.offset_factor == 1 and declared.data_alignment <= size:
        return
    unit = _offset_unit(plan, view)
    if each_row:
        apart = (constant(s) for s in _tile_strides(plan, view)[:-1] if s is not None)
        unit = gcd(unit, *(1 if distance is None else distance for distance in apart))
    if unit % declared.offset_factor:
        raise Mismatch(
            f"the tile of {view.array} begins at multiples of {unit} elements, the intrinsic declares offset_factor="
            f"{declared.offset_factor} for {declared.name}"
        )
    start = size if plan.is_argument else _OWN_ALIGNMENT
    alignment = gcd(start, unit * size)
    if declared.data_alignment > size and alignment % declared.data_alignment:
        raise Mismatch(
            f"the tile of {view.array} is aligned to {alignment} bytes, the intrinsic declares data_alignment="
            f"{declared.data_alignment} for {declared.name}",
            f"copy {view.array} to scratch memory (cache_read), which begins at multiples of {_OWN_ALIGNMENT} bytes",
        )


def _offset_unit(plan: BufferPlan, view: TileView) -> int:
    """The largest number of which the offset of the first element is known to be a multiple; 0 for no offset."""
    steps = [int(s.value) if isinstance(s, Const) else 1 for s in array_strides(plan.buffer)]
    lead, unit = leading(plan), 0
    for step in steps[:lead]:
        unit = gcd(unit, step)
    moduli = plan.moduli[lead - len(plan.lanes) :] or (0,) * len(view.index)
    for index, base, step, modulus in zip(view.index, plan.base, steps[lead:], moduli, strict=True):
        form = None if modulus else _distance(index, base)
        for factor in (form if form is not None else {"": 1}).values():
            unit = gcd(unit, factor * step)
    return unit
