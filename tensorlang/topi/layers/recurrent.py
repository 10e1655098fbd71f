"""Recurrent layers as scans over time: LSTM and GRU, behind one product for the inputs of all times."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorlang import te
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, cast
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import extents
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed, rounded_once, widened
from tensorlang.topi.dense import dense
from tensorlang.topi.transform import reshape


@checked
def lstm(
    Xs: Tensor,
    Wi: Tensor,
    Wh: Tensor,
    Bi: Tensor | None = None,
    Bh: Tensor | None = None,
    h_init: Tensor | None = None,
    c_init: Tensor | None = None,
    proj: Tensor | None = None,
    p_i: Tensor | None = None,
    p_f: Tensor | None = None,
    p_o: Tensor | None = None,
    f_act: Callable[..., Expr] = te.sigmoid,
    g_act: Callable[..., Expr] = te.tanh,
    h_act: Callable[..., Expr] = te.tanh,
    reverse: bool = False,
    weight_layout: str = "IFGO",
    name: str = "lstm",
) -> tuple[Tensor, Tensor]:
    """Return the states h [time, batch, hidden or projected] and c [time, batch, hidden] of an LSTM.

    `Xs` [time, batch, inputs]; weights of the inputs `Wi` [4 * hidden, inputs] and of the state `Wh` [4 * hidden,
    hidden or projected], with biases `Bi` and `Bh` [4 * hidden]: the gates lie as `weight_layout` orders the letters
    of input, forget, cell (G) and output. `proj` [projected, hidden] makes the state smaller, `p_i`, `p_f` and `p_o`
    [batch, hidden] are peepholes, `h_init` and `c_init` [batch, ...] the first states (zeros unless given). `reverse`
    runs from the last time on; results are in the order of steps. DefinitionError where shapes do not fit.

        >>> from tensorlang import te, topi
        >>> x, wi, wh = te.placeholder((7, 2, 5)), te.placeholder((12, 5)), te.placeholder((12, 3))
        >>> [t.shape for t in topi.nn.lstm(x, wi, wh)]
        [(7, 2, 3), (7, 2, 3)]
    """
    layer, gates = _layer(name, Xs, Wi, Wh, 4, proj), _gates(name, weight_layout, "IFGO")
    peepholes = [(p, layer.hidden) for p in (p_i, p_f, p_o) if p is not None]
    firsts = [(h_init, layer.seen), (c_init, layer.hidden), *peepholes]
    layer.check([Bi, Bh], [(t, (layer.batch, n)) for t, n in firsts if t is not None])
    inputs = layer.inputs(Xs, Wi, Bi, reverse)
    starts = [layer.start(h_init, layer.seen, "h"), layer.start(c_init, layer.hidden, "c")]
    state, memory = (layer.placeholder(start) for start in starts)
    product = layer.product(state, Wh, Bh, "gates")

    def gate(letter: str, t: Expr, b: Expr, j: Expr) -> Expr:
        return widened(inputs(t - 1, b, gates[letter], j)) + product(t, b, gates[letter], j)

    def seen(letter: str, peephole: Tensor | None, c: Expr, t: Expr, b: Expr, j: Expr) -> Expr:
        value = gate(letter, t, b, j)
        return f_act(value if peephole is None else value + widened(peephole(b, j)) * c)

    def remembered(t: Expr, b: Expr, j: Expr) -> Expr:
        before = widened(memory(t - 1, b, j))
        kept = seen("F", p_f, before, t, b, j) * before
        return kept + seen("I", p_i, before, t, b, j) * g_act(gate("G", t, b, j))

    c = layer.step(memory.shape, remembered, "next_c")
    h = layer.step(c.shape, lambda *i: seen("O", p_o, widened(c(*i)), *i) * h_act(widened(c(*i))), "next_h")
    if proj is not None:
        h = layer.projected(h, proj)
    hs, cs = te.scan(starts, [h, c], [state, memory], name=f"{name}_scan")
    return layer.states(hs, f"{name}_h"), layer.states(cs, f"{name}_c")


@checked
def gru(
    Xs: Tensor,
    Wi: Tensor,
    Wh: Tensor,
    Bi: Tensor | None = None,
    Bh: Tensor | None = None,
    h_init: Tensor | None = None,
    f_act: Callable[..., Expr] = te.sigmoid,
    g_act: Callable[..., Expr] = te.tanh,
    reverse: bool = False,
    weight_layout: str = "RZN",
    name: str = "gru",
) -> Tensor:
    """Return the states [time, batch, hidden] of a GRU, as PyTorch has it: the reset gate is behind the product.

    `Xs` [time, batch, inputs]; weights `Wi` [3 * hidden, inputs] and `Wh` [3 * hidden, hidden], biases `Bi` and `Bh` [3
    * hidden]: the gates lie as `weight_layout` orders the letters of reset, update (Z) and new. `h_init` [batch,
    hidden] is the first state (zeros unless given), `reverse` runs from the last time on;
    results are in the order of steps. DefinitionError where shapes do not fit.

        >>> from tensorlang import te, topi
        >>> topi.nn.gru(te.placeholder((7, 2, 5)), te.placeholder((9, 5)), te.placeholder((9, 3))).shape
        (7, 2, 3)
    """
    layer, gates = _layer(name, Xs, Wi, Wh, 3, None), _gates(name, weight_layout, "RZN")
    layer.check([Bi, Bh], [(h_init, (layer.batch, layer.hidden))] if h_init is not None else [])
    inputs = layer.inputs(Xs, Wi, Bi, reverse)
    start = layer.start(h_init, layer.hidden, "h")
    state = layer.placeholder(start)
    product = layer.product(state, Wh, Bh, "gates")

    def gate(letter: str, t: Expr, b: Expr, j: Expr) -> Expr:
        return f_act(widened(inputs(t - 1, b, gates[letter], j)) + product(t, b, gates[letter], j))

    def updated(t: Expr, b: Expr, j: Expr) -> Expr:
        fresh = widened(inputs(t - 1, b, gates["N"], j)) + gate("R", t, b, j) * product(t, b, gates["N"], j)
        share = gate("Z", t, b, j)
        kept = share * widened(state(t - 1, b, j))
        return kept + (te.const(1, share.dtype) - share) * g_act(fresh)

    h = layer.step(state.shape, updated, "next_h")
    return layer.states(te.scan(start, h, state, name=f"{name}_scan"), f"{name}_h")


@dataclass(frozen=True, slots=True)
class _Layer:
    """What a recurrent layer is made of; its state has `seen` elements."""

    name: str
    dtype: str
    time: int
    batch: int
    hidden: int
    seen: int
    gates: int

    def check(self, biases: Sequence[Tensor | None], others: Sequence[tuple[Tensor, tuple[int, ...]]]) -> None:
        """DefinitionError where a bias or another tensor has another shape or dtype."""
        wanted = [(bias, (self.gates * self.hidden,)) for bias in biases if bias is not None]
        for tensor, shape in (*wanted, *others):
            if extents(self.name, tensor) != shape or tensor.dtype != self.dtype:
                raise DefinitionError(f"{self.name} wants {self.dtype} of shape {shape}, got {tensor}")

    def inputs(self, data: Tensor, weight: Tensor, bias: Tensor | None, reverse: bool) -> Tensor:
        """What inputs make of all gates, [time, batch, gate, hidden], in the order of the steps."""
        rows = reshape(data, (self.time * self.batch, extents(self.name, data)[2]), f"{self.name}_rows")
        product = dense(rows, weight, bias, name=f"{self.name}_inputs")

        def element(t: Expr, b: Expr, g: Expr, j: Expr) -> Expr:
            step = self.time - 1 - t if reverse else t
            return product(step * self.batch + b, g * self.hidden + j)

        return computed((self.time, self.batch, self.gates, self.hidden), element, f"{self.name}_steps")

    def start(self, given: Tensor | None, elements: int, word: str) -> Tensor:
        """The state before the first step; zeros where it is not given."""

        def element(_: Expr, b: Expr, j: Expr) -> Expr:
            return te.const(0, self.dtype) if given is None else given(b, j)

        return computed((1, self.batch, elements), element, f"{self.name}_{word}_init")

    def placeholder(self, start: Tensor) -> Tensor:
        """The states over time, the first one in front."""
        return te.placeholder((self.time + 1, *start.shape[1:]), self.dtype, f"{start.name}_state")

    def step(self, shape: Sequence[Expr], element: Callable[..., Expr], word: str) -> Tensor:
        """What each step makes, rounded once: narrow floats are computed in float32."""
        return computed(shape, lambda *i: cast(element(*i), self.dtype), f"{self.name}_{word}")

    def product(self, state: Tensor, weight: Tensor, bias: Tensor | None, word: str) -> Callable[..., Expr]:
        """What the last state makes of a gate, by time, batch, gate and element.

        Rows of weights lie along memory, and are read once for the whole batch.
        """
        k = te.reduce_axis((0, self.seen), "k")
        shape = (self.time + 1, self.gates, self.hidden, self.batch)
        made = computed(
            shape,
            lambda t, g, j, b: te.sum(widened(state(t - 1, b, k)) * widened(weight(g * self.hidden + j, k)), axis=k),
            f"{self.name}_{word}",
        )
        if bias is None:
            return lambda t, b, g, j: made(t, g, j, b)
        held = bias
        return lambda t, b, g, j: made(t, g, j, b) + widened(held(g * self.hidden + j))

    def projected(self, state: Tensor, weight: Tensor) -> Tensor:
        """The state that is seen: a projection of the hidden one."""
        k, shape = te.reduce_axis((0, self.hidden), "k"), (self.time + 1, self.batch, self.seen)

        def sums(name: str, dtype: str) -> Tensor:
            def element(t: Expr, b: Expr, j: Expr) -> Expr:
                return te.sum(cast(state(t, b, k), dtype) * cast(weight(j, k), dtype), axis=k)

            return computed(shape, element, name)

        return rounded_once(f"{self.name}_projected", self.dtype, sums)

    def states(self, scanned: Tensor, name: str) -> Tensor:
        """The states of all steps, in the order of these, without the first one."""
        return computed((self.time, *scanned.shape[1:]), lambda t, b, j: scanned(t + 1, b, j), name)


def _layer(name: str, data: Tensor, weight: Tensor, recurrent: Tensor, gates: int, proj: Tensor | None) -> _Layer:
    """Read the extents; DefinitionError where they do not fit."""
    tensors = [data, weight, recurrent, *([] if proj is None else [proj])]
    text = f"data [time, batch, inputs], weights [{gates} * hidden, inputs] and [{gates} * hidden, hidden]"
    wrong = DefinitionError(f"{name} wants {text} of one dtype, for one step at least; got {tensors}")
    if [t.ndim for t in tensors] != [3, 2, 2, 2][: len(tensors)] or len({t.dtype for t in tensors}) > 1:
        raise wrong
    (time, batch, inputs), *shapes = (extents(name, t) for t in tensors)
    hidden = shapes[0][0] // gates
    seen = hidden if proj is None else shapes[2][0]
    if shapes != [(gates * hidden, inputs), (gates * hidden, seen), (seen, hidden)][: len(shapes)] or time < 1:
        raise wrong
    return _Layer(name, data.dtype, time, batch, hidden, seen, gates)


def _gates(name: str, layout: str, letters: str) -> dict[str, int]:
    """The place of each gate among the rows of weights."""
    if sorted(layout) != sorted(letters):
        raise DefinitionError(f"{name}: weight_layout orders the letters {letters}, got {layout!r}")
    return {letter: layout.index(letter) for letter in letters}
