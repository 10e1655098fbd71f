"""A backend of torch.compile: what has rules becomes networks, everything else stays with PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tensorlang.errors import ArgumentError
from tensorlang.networks.compiling import compile_network
from tensorlang.networks.network import Network
from tensorlang.networks.node import own_stages
from tensorlang.networks.torch.modules import kept
from tensorlang.networks.torch.package import torch_package
from tensorlang.networks.torch.reading import Reading
from tensorlang.networks.torch.report import Compiled, tell
from tensorlang.networks.torch.sharing import VIEWS, copy_views, partitions_of, placeholder_of, shares_of
from tensorlang.networks.torch.values import array_of, tensor_of

_OPTIONS = ("freeze",)


def compile_graph(
    module: Any, inputs: Sequence[Any], options: Mapping[str, Any] | None = None, **_modes: Any
) -> Callable[..., Any]:
    """Compile a graph of `torch.compile(model, backend="tensorlang")`: its functions forward and backward, in parts.

    Calls that have rules become networks, as large as they can be; others stay with PyTorch, and
    `tensorlang.networks.torch.report()` says which and why. Gradients are those that PyTorch derives, compiled in the
    same way. Shapes are fixed: other ones are compiled anew. `options={"freeze": True}`: parameters and buffers do not
    change after the first call without gradients, so that they are laid out, and folded, ahead. ArgumentError for other
    options.
    """
    torch_package()
    from torch._decomp import core_aten_decompositions
    from torch._dynamo.backends.common import aot_autograd

    chosen = dict(options or {})
    if unknown := set(chosen) - set(_OPTIONS):
        raise ArgumentError(f"the backend has the options {', '.join(_OPTIONS)}; got {', '.join(sorted(unknown))}")
    _fix_shapes(inputs)
    weights = list(inputs) if chosen.get("freeze") else []
    made: Callable[..., Any] = aot_autograd(
        fw_compiler=partial(_compiled, "forward", []),
        bw_compiler=partial(_compiled, "backward", []),
        inference_compiler=partial(_compiled, "inference", weights),
        decompositions=kept(core_aten_decompositions()),
    )(module, inputs)
    return made


def _fix_shapes(inputs: Sequence[Any]) -> None:
    """Ask for each size as a number, which PyTorch then guards."""
    torch = torch_package()
    for given in inputs:
        if isinstance(given, torch.Tensor):
            for size in given.shape:
                int(size)
        elif isinstance(given, torch.SymInt):
            int(given)


def _compiled(kind: str, weights: Sequence[Any], module: Any, inputs: Sequence[Any]) -> Callable[..., Any]:
    """A graph with networks in place of what has rules."""
    torch_package()
    from torch._functorch.aot_autograd import make_boxed_func
    from torch.fx.passes.utils.fuser_utils import fuse_by_partitions
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():  # what is known ahead is no fake tensor
        shares = shares_of(module.graph, _frozen(module.graph, weights))
        copy_views(module.graph, shares)
        parts = list(partitions_of(module, shares))
        fused = fuse_by_partitions(module, [dict.fromkeys(nodes) for nodes in parts], prefix="network")
        known = {node.name: value for node, value in shares.known.items()}  # fusing makes other nodes of these names
        kernels = tuple(_replace(fused, node, known) for node in _networks(fused, len(parts)))
    fused.graph.eliminate_dead_code()
    fused.recompile()
    left = tuple(refusal for refusal in shares.left.values() if refusal.op not in VIEWS)
    tell(Compiled(kind, sum(map(len, parts)), kernels, left))
    made: Callable[..., Any] = make_boxed_func(fused.forward)
    return made


def _networks(module: Any, count: int) -> list[Any]:
    names = {f"network{number}" for number in range(count)}
    return [node for node in module.graph.nodes if node.op == "call_module" and node.target in names]


def _frozen(graph: Any, weights: Sequence[Any]) -> dict[Any, Any]:
    """Parameters and buffers as values that are known; inputs of the graph are in the order of those of the model."""
    torch = torch_package()
    context = torch._guards.TracingContext.try_get()
    places = [node for node in graph.nodes if node.op == "placeholder"]
    if not weights or context is None or context.fw_metadata is None or len(places) != len(weights):
        return {}
    still = context.fw_metadata.static_input_indices or []
    return {places[k]: weights[k] for k in still if isinstance(weights[k], torch.Tensor)}


def _replace(parent: Any, node: Any, known: Mapping[str, Any]) -> int:
    """Compile a part and put its network in its place; returns the number of its kernels."""
    torch, part = torch_package(), getattr(parent, node.target)
    reading = Reading()
    given: list[Any] = []
    for place, source in zip((n for n in part.graph.nodes if n.op == "placeholder"), node.args, strict=True):
        if source.name in known:
            reading.values[place] = known[source.name]
        else:
            reading.values[place] = placeholder_of(place, f"input{len(given)}")
            given.append((source, reading.values[place]))
    reading.read(part.graph.nodes)
    (last,) = (n for n in part.graph.nodes if n.op == "output")
    wanted = last.args[0]
    outputs = list(wanted) if isinstance(wanted, list | tuple) else [wanted]
    network = Network(
        node.target,
        tuple(tensor for _, tensor in given),
        own_stages([reading.values[n] for n in outputs], reading.weights),
        reading.weights.arrays,
        tuple(tensor.name for _, tensor in given),
        tuple(n.name for n in outputs),
        reading.origins,
    )
    model = compile_network(network)
    strides = [tuple(n.meta["val"].stride()) for n in outputs]
    caller = torch.nn.Module()
    caller.forward = partial(_run, model, strides, isinstance(wanted, list | tuple))
    setattr(parent, node.target, caller)
    node.args = tuple(source for source, _ in given)
    return len(model.steps)


def _run(model: Any, strides: Sequence[tuple[int, ...]], many: bool, *inputs: Any) -> Any:
    """Call a network with tensors; what it returns has the strides that PyTorch has reckoned with."""
    made = []
    for array, wanted in zip(model.run([array_of(t) for t in inputs]), strides, strict=True):
        tensor = tensor_of(array)
        if any(n > 1 and a != b for n, a, b in zip(tensor.shape, tensor.stride(), wanted, strict=True)):
            tensor = _with_strides(tensor, wanted)
        made.append(tensor)
    return tuple(made) if many else made[0]


def _with_strides(tensor: Any, strides: Sequence[int]) -> Any:
    """A tensor laid out with other strides; along those of 0 all elements are the first one."""
    first = tensor[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in strides)]
    laid = torch_package().empty_strided(first.shape, strides, dtype=tensor.dtype)
    return laid.copy_(first).expand(tensor.shape)
