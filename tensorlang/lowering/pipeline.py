"""The passes from a schedule state to target-ready loop IR: one page.

The kernel that a target gets is always read back: it runs the instances wanted, each once, in the order of the schedule
(lowering.read_back.implemented). With `TENSORLANG_CHECK=1` what every pass has made is verified, too. With
`TENSORLANG_LOG=passes` every pass prints its time and whether it changed anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial

from tensorlang import config
from tensorlang.errors import InternalError
from tensorlang.ir.name_parts import name_parts
from tensorlang.ir.printer import kernel_text
from tensorlang.ir.simplify.statements import simplify_kernel
from tensorlang.ir.stmt import Combiner, Kernel
from tensorlang.ir.verify import Known, verify
from tensorlang.limits import check_time
from tensorlang.lowering.asynchronous import copied_ahead
from tensorlang.lowering.barrier_notes import BarrierNote, barrier_notes
from tensorlang.lowering.barriers import Placed, with_barriers
from tensorlang.lowering.bulk import copied_in_bulk, with_boxes
from tensorlang.lowering.device import kernel as device
from tensorlang.lowering.device.kernel import verify_nest
from tensorlang.lowering.device.limits import check_limits
from tensorlang.lowering.device.nest import Nest
from tensorlang.lowering.device.one_thread import warn_of_one_thread
from tensorlang.lowering.device.scratch import scratch_of
from tensorlang.lowering.device.split import Split, split
from tensorlang.lowering.device.structure import check_structure, has_threads, reducers
from tensorlang.lowering.dump import Dump
from tensorlang.lowering.kernel import leaf_builder, make_kernel
from tensorlang.lowering.passes.first_products import first_products
from tensorlang.lowering.passes.guard_tails import guard_tails
from tensorlang.lowering.passes.hoist_tests import hoist_tests
from tensorlang.lowering.passes.interleave import interleave
from tensorlang.lowering.passes.peel_prologue import peel_prologue
from tensorlang.lowering.passes.pragmas import unroll_as_asked
from tensorlang.lowering.passes.prefetch_once import prefetch_once
from tensorlang.lowering.passes.unfuse import unfuse
from tensorlang.lowering.passes.unroll import unroll, unroll_bounds, unroll_tails
from tensorlang.lowering.passes.vector_tails import vector_tails
from tensorlang.lowering.passes.wide_copies import wide_copies
from tensorlang.lowering.read_back.implemented import check_implemented, parts_of
from tensorlang.lowering.read_back.stored import check_stored
from tensorlang.lowering.read_back.stripped import stripped
from tensorlang.lowering.size import check_arrays, check_size
from tensorlang.lowering.storage import Storage
from tensorlang.lowering.tensorize import with_tiles
from tensorlang.lowering.watch import Pass, Watch
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import divides
from tensorlang.polyhedral.statement import Scop
from tensorlang.polyhedral.tiles import is_tested
from tensorlang.schedule.check import check_placed, too_complex
from tensorlang.schedule.derive import derive
from tensorlang.schedule.derive.derivation import This
from tensorlang.schedule.derive.plans import Derived
from tensorlang.schedule.state import ScheduleState
from tensorlang.schedule.tiles.plan import finished_later, run_by_lanes
from tensorlang.target.spec import Target

LOOP_PASSES: tuple[Pass[Kernel], ...] = (
    ("unfuse", unfuse),
    ("unroll_bounds", unroll_bounds),
    ("simplify", simplify_kernel),
    ("vector_tails", vector_tails),
    ("pragmas", unroll_as_asked),
    ("unroll_tails", unroll_tails),
    ("simplify_tails", simplify_kernel),
    ("hoist_tests", hoist_tests),
)
COPY_PASSES: tuple[Pass[Kernel], ...] = (
    ("unroll", unroll),
    ("clean", simplify_kernel),
    ("prefetch_once", prefetch_once),
)
CPU_PASSES = (*LOOP_PASSES, *COPY_PASSES)
DEVICE_LOOP_PASSES: tuple[Pass[Kernel], ...] = (
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
DEVICE_COPY_PASSES: tuple[Pass[Kernel], ...] = (
    ("wide_copies", wide_copies),
    ("first_products", first_products),
)
DEVICE_PASSES = (*DEVICE_LOOP_PASSES, *DEVICE_COPY_PASSES)
"""Then `split` leaves the host its program, and each device nest in it becomes a kernel:"""
KERNEL_PASSES: tuple[Pass[Nest], ...] = (
    ("drop_unused", device.drop_unused),
    ("place_arrays", device.place_arrays),
    ("count_threads", device.count_threads),
    ("check_groups", device.check_groups),
    ("to_threads", device.to_threads),
    ("own_arrays", device.own_arrays),
    ("simplify_own", device.simplify),
    ("drop_unused_own", device.drop_unused),
    ("keep_once", device.keep_once),
    ("legal_kinds", device.legal_kinds),
    ("simplify_kinds", device.simplify),
    ("call_once", device.call_once),
    ("shuffle", device.shuffle),
    ("check_own", device.check_own),
    ("narrow_indices", device.narrow_indices),
)


def lower_state(state: ScheduleState, params: Sequence[str], name: str, target: Target, dump: Dump) -> Kernel:
    """Return the target-ready kernel of a schedule state; `params` names its buffers in order.

    For a GPU it is the program of the host, with the launches of its kernels. The interpreter runs loops that are bound
    to threads as a GPU does.
    """
    check_placed(state)
    threads = target.can.device or (target.can.blocks and has_threads(derive(state).tree))
    asked = target if threads else None  # what was built for one processor serves another
    if dump.folder is not None or "passes" in config.get("log"):  # every pass is to be seen
        kernel = _lower(state, params, name, asked, dump)
    else:
        limits = tuple(config.get(setting) for setting in ("check", "budget", "statements", "scratch"))
        kernel = _lowered(This(state), tuple(params), name, asked, limits)
    if target.can.device:
        warn_of_one_thread(state, derive(state))
    check_arrays(kernel)  # by the limits of those who ask now
    return kernel


@lru_cache(maxsize=1)
def _lowered(
    asked: This, params: tuple[str, ...], name: str, target: Target | None, limits: tuple[object, ...]
) -> Kernel:
    """What was lowered to be shown, or to try a record, serves a build."""
    return _lower(asked.state, params, name, target, Dump(name))


def _lower(state: ScheduleState, params: Sequence[str], name: str, target: Target | None, dump: Dump) -> Kernel:
    """A kernel that is proven to run what it should.

    isl makes wrong loops of some domains that are divided, which the proof notices: there the statements test these
    conditions themselves.
    """
    derived = derive(state)
    lowered = _lower_for_cpu if target is None else partial(_lower_for_threads, target=target)
    try:
        return lowered(state, derived, params, name, dump)
    except InternalError:
        careful = _testing_quotients(derived)
        if careful is None:
            raise
        return lowered(state, careful, params, name, dump)


def _testing_quotients(derived: Derived) -> Derived | None:
    """Statements that test themselves what divides; None where there is no more to be tested."""
    scop = derived.scop
    if not any(divides(c) and not is_tested(s, c) for s in scop.statements for c in s.domain):
        return None
    statements = tuple(replace(statement, tests_quotients=True) for statement in scop.statements)
    return replace(derived, scop=replace(scop, statements=statements))


def _lower_for_cpu(state: ScheduleState, derived: Derived, params: Sequence[str], name: str, dump: Dump) -> Kernel:
    kernel, parts = _scanned(state, derived, params, name, CPU_PASSES, dump)
    _check(derived.scop, kernel, parts)
    return stripped(kernel)


def _lower_for_threads(
    state: ScheduleState, derived: Derived, params: Sequence[str], name: str, dump: Dump, target: Target
) -> Kernel:
    check_structure(state, derived)
    derived, _ = _in_regions(state, derived, target)
    kernel, parts = _scanned(state, derived, params, name, DEVICE_PASSES, dump)
    check_arrays(kernel)
    reduced, scratch = reducers(state, derived.scop.gathered), scratch_of(state.program)
    kernel = _on_device(kernel, reduced, python=target.can.python_calls, dump=dump, scratch=scratch)
    check_limits(kernel, target)
    _check(derived.scop, kernel, parts)
    return stripped(kernel)


def _scanned(
    state: ScheduleState, derived: Derived, params: Sequence[str], name: str, passes: Sequence[Pass[Kernel]], dump: Dump
) -> tuple[Kernel, frozenset[tuple[int, int]]]:
    """The loops after the scan and passes, and the parts of statements in them."""
    start = time.perf_counter()
    scanned = with_tiles(state, derived)
    kernel = name_parts(make_kernel(state, derived, scanned, params, name))
    parts = parts_of(kernel)
    verified = (_verifier(passes),) if config.get("check") else ()
    watch = Watch(dump, kernel_text, (_check_limits, *verified))
    watch.done("scan", start, kernel)
    kernel = watch.run(passes, kernel)
    if config.get("check"):
        with isl.budget(config.get("budget")):
            check_stored(kernel, derived.scop, leaf_builder(state, derived, scanned, Storage(derived.plans)))
    return kernel, parts


def to_device(kernel: Kernel, reducers: Mapping[str, Combiner] | None = None, *, python: bool = False) -> Kernel:
    """Return the host program of a kernel in region form, with its nests on blocks and threads as kernels.

    See `split` for the arguments, and for nests that it refuses. Raises TargetError for what a GPU cannot run: a block
    loop that is not outermost, a number of threads or a shared array whose size is not constant.
    """
    return _on_device(kernel, reducers or {}, python=python, dump=Dump(kernel.name))


def _on_device(
    kernel: Kernel,
    reducers: Mapping[str, Combiner],
    *,
    python: bool,
    dump: Dump,
    scratch: Collection[str] = frozenset(),
) -> Kernel:
    """Leave the host its program, and take the nests in it through their passes."""
    checking = config.get("check")
    watch = Watch(dump, _draft_text, (_verify_nests,) if checking else ())
    start = time.perf_counter()
    program = split(kernel, reducers, python=python, scratch=scratch)
    watch.done("split", start, program)
    program = watch.run([(word, partial(Split.each, function=function)) for word, function in KERNEL_PASSES], program)
    start = time.perf_counter()
    made = program.joined()
    for nest in program.nests:
        verify_nest(nest)  # whatever the settings: a wrong kernel may hang a device, or write anywhere
    Watch(dump, kernel_text, (_verify_host,) if checking else ()).done("join", start, made)
    return made


def _draft_text(program: Split) -> str:
    return kernel_text(program.joined())


def _verify_nests(_: str, program: Split) -> None:
    for nest in program.nests:
        verify_nest(nest)


def _verify_host(_: str, kernel: Kernel) -> None:
    verify(kernel)


def _check_limits(word: str, kernel: Kernel) -> None:
    """TooComplex where a pass took too long, or made too much."""
    check_time()
    check_size(kernel, word)


def _verifier(passes: Sequence[Pass[Kernel]]) -> Callable[[str, Kernel], None]:
    """The check of kernels between passes: what is said of vectorized loops holds after the pass that sees to it."""
    names = [word for word, _ in passes]
    legal = names[names.index("vector_tails") :]
    known: Known = {}
    return lambda word, kernel: verify(kernel, word in legal, known)


def barriers_of(state: ScheduleState, target: Target) -> tuple[BarrierNote, ...]:
    """Why threads of a GPU wait for each other in a schedule: a note for each barrier."""
    return barrier_notes(_in_regions(state, derive(state), target)[1])


def _in_regions(state: ScheduleState, derived: Derived, target: Target) -> tuple[Derived, tuple[Placed, ...]]:
    """The tree with the barriers between the regions of threads, waits for copies and products, and copies in bulk."""
    bulk = copied_in_bulk(state, target)
    made, placed = with_barriers(derived, copied_ahead(state), run_by_lanes(state), finished_later(state), bulk)
    return with_boxes(state, made, bulk), placed


def _check(scop: Scop, kernel: Kernel, parts: frozenset[tuple[int, int]]) -> None:
    """Prove that the kernel runs what it should. A wrong loop would be a silently wrong answer."""
    try:
        with isl.budget(config.get("budget")):
            check_implemented(kernel, scop, parts)
    except isl.BudgetExceeded:
        raise too_complex(f"lower {kernel.name}", "the check of the generated loops") from None
