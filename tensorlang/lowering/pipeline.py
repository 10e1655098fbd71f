"""The passes from a schedule state to target-ready loop IR: one page.

The loops that isl made are always compared with the instances wanted; with `TENSORLANG_CHECK=1` their order is
proven again too, and the kernel is verified after every pass. With `TENSORLANG_LOG=passes` every pass prints its
time and whether it changed anything.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

from tensorlang import config
from tensorlang.ir.name_parts import name_parts
from tensorlang.ir.printer import kernel_text
from tensorlang.ir.simplify.statements import simplify_kernel
from tensorlang.ir.stmt import Kernel
from tensorlang.ir.verify import verify
from tensorlang.lowering.asynchronous import copied_ahead
from tensorlang.lowering.barrier_notes import BarrierNote, barrier_notes
from tensorlang.lowering.barriers import Placed, with_barriers
from tensorlang.lowering.bulk import copied_in_bulk, with_boxes
from tensorlang.lowering.device import to_device
from tensorlang.lowering.device.limits import check_limits
from tensorlang.lowering.device.one_thread import warn_of_one_thread
from tensorlang.lowering.device.structure import check_structure, has_threads, reducers
from tensorlang.lowering.dump import Dump
from tensorlang.lowering.implemented import check_implemented
from tensorlang.lowering.kernel import make_kernel
from tensorlang.lowering.passes.first_products import first_products
from tensorlang.lowering.passes.guard_tails import guard_tails
from tensorlang.lowering.passes.hoist_tests import hoist_tests
from tensorlang.lowering.passes.interleave import interleave
from tensorlang.lowering.passes.peel_prologue import peel_prologue
from tensorlang.lowering.passes.pragmas import unroll_as_asked
from tensorlang.lowering.passes.unfuse import unfuse
from tensorlang.lowering.passes.unroll import unroll, unroll_bounds, unroll_tails
from tensorlang.lowering.passes.vector_tails import vector_tails
from tensorlang.lowering.passes.wide_copies import wide_copies
from tensorlang.lowering.tensorize import Scanned, with_tiles
from tensorlang.polyhedral import isl
from tensorlang.schedule.check import check_placed, too_complex
from tensorlang.schedule.derive import derive
from tensorlang.schedule.derive.plans import Derived
from tensorlang.schedule.state import ScheduleState
from tensorlang.schedule.tiles.plan import finished_later, run_by_lanes
from tensorlang.target.spec import GPU_KINDS, Target

Pass = Callable[[Kernel], Kernel]

LOOP_PASSES: tuple[tuple[str, Pass], ...] = (
    ("unfuse", unfuse),
    ("unroll_bounds", unroll_bounds),
    ("simplify", simplify_kernel),
    ("vector_tails", vector_tails),
    ("pragmas", unroll_as_asked),
    ("unroll_tails", unroll_tails),
    ("simplify_tails", simplify_kernel),
    ("hoist_tests", hoist_tests),
)
COPY_PASSES: tuple[tuple[str, Pass], ...] = (
    ("unroll", unroll),
    ("clean", simplify_kernel),
)
CPU_PASSES = (*LOOP_PASSES, *COPY_PASSES)
DEVICE_LOOP_PASSES: tuple[tuple[str, Pass], ...] = (
    ("unfuse", unfuse),
    ("unroll_bounds", unroll_bounds),
    ("simplify", simplify_kernel),
    ("vector_tails", vector_tails),
    ("interleave", interleave),
    ("pragmas", unroll_as_asked),
    ("guard_tails", guard_tails),
    ("simplify_tails", simplify_kernel),
    ("hoist_tests", hoist_tests),
    ("peel_prologue", peel_prologue),
    ("simplify_peeled", simplify_kernel),
)
DEVICE_PASSES = (*DEVICE_LOOP_PASSES, ("wide_copies", wide_copies), ("first_products", first_products))
PASSES = {"llvm": CPU_PASSES, "interpreter": CPU_PASSES, "cuda": DEVICE_PASSES, "opencl": DEVICE_PASSES}


def lower_state(state: ScheduleState, params: Sequence[str], name: str, target: Target, dump: Dump) -> Kernel:
    """Return the target-ready kernel of a schedule state; `params` names its buffers in order.

    For a GPU it is the program of the host, with the launches of its kernels. The interpreter runs loops that are bound
    to threads as a GPU does.
    """
    logging, checking = "passes" in config.get("log"), config.get("check")
    start = time.perf_counter()
    check_placed(state)
    derived = derive(state)
    on_device = target.kind in GPU_KINDS or (target.kind == "interpreter" and has_threads(derived.tree))
    if on_device:
        check_structure(state, derived)
        if target.kind in GPU_KINDS:
            warn_of_one_thread(state, derived)
        derived, _ = _in_regions(state, derived, target)
    scanned = with_tiles(state, derived)
    kernel = name_parts(make_kernel(state, derived, scanned, params, name))
    _check(derived, scanned, name, DEVICE_LOOP_PASSES if on_device else LOOP_PASSES, order=checking)
    if checking:
        verify(kernel, lanes=False)
    dump.write("scan", "loops", partial(kernel_text, kernel))
    if logging:
        _log("scan", start, True)
    tails_done = False
    for word, function in DEVICE_PASSES if on_device else PASSES[target.kind]:
        start, before = time.perf_counter(), kernel
        kernel = function(kernel)
        tails_done = tails_done or word == "vector_tails"
        if checking:
            verify(kernel, lanes=tails_done)
        dump.write(word, "loops", partial(kernel_text, kernel))
        if logging:
            _log(word, start, kernel_text(kernel) != kernel_text(before))
    if not on_device:
        return kernel
    kernel = to_device(kernel, reducers(state, derived.scop.gathered), python=target.kind not in GPU_KINDS)
    check_limits(kernel, target)
    dump.write("device", "loops", partial(kernel_text, kernel))
    return kernel


def barriers_of(state: ScheduleState, target: Target) -> tuple[BarrierNote, ...]:
    """Why threads of a GPU wait for each other in a schedule: a note for each barrier."""
    return barrier_notes(_in_regions(state, derive(state), target)[1])


def _in_regions(state: ScheduleState, derived: Derived, target: Target) -> tuple[Derived, tuple[Placed, ...]]:
    """The tree with the barriers between the regions of threads, waits for copies and products, and copies in bulk."""
    bulk = copied_in_bulk(state, target)
    made, placed = with_barriers(derived, copied_ahead(state), run_by_lanes(state), finished_later(state), bulk)
    return with_boxes(state, made, bulk), placed


def _check(derived: Derived, scanned: Scanned, name: str, passes: Sequence[tuple[str, Pass]], order: bool) -> None:
    """Prove that isl's loops, after the passes that reshape them, run what they should.

    A wrong loop would be a silently wrong answer.
    """
    try:
        with isl.budget(config.get("budget")):
            check_implemented(derived, scanned, [function for _, function in passes], order)
    except isl.BudgetExceeded:
        raise too_complex(f"lower {name}", "the check of the generated loops") from None


def _log(word: str, start: float, changed: bool) -> None:
    note = "" if changed else "  (unchanged)"
    print(f"{word:<14} {1e3 * (time.perf_counter() - start):8.2f} ms{note}", file=sys.stderr)
