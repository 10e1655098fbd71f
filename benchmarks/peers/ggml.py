"""Products and attention of ggml's CPU backend, the library inside llama.cpp, of the package llama-cpp-python.

Weights are repacked where ggml has a layout for this CPU, as llama.cpp does when it loads a file; all of its memory is
asked to be huge pages before it is written.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import weakref
from collections.abc import Callable, Sequence
from ctypes import c_bool, c_char_p, c_float, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Turn = Callable[[], object]
Made = tuple[Turn, int] | str
Array = npt.NDArray[Any]

TYPES = {"float32": 0, "float16": 1, "q4_0": 2, "q8_0": 8, "q2_k": 10, "q3_k": 11, "q4_k": 12, "q5_k": 13, "q6_k": 14}
TYPES |= {"q5_0": 6, "bfloat16": 30, "mxfp4": 39, "nvfp4": 40}
"""Its numbers of types, as `ggml.h` has them."""
_SAME = 0.4
"""Of the norm of what float32 makes: so far may results of weights be that ggml quantized, to two bits also."""
_MADV_HUGEPAGE = 14


class _InitParams(ctypes.Structure):
    _fields_ = [("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool)]


_SIGNATURES: dict[str, tuple[Any, Sequence[Any]]] = {
    "ggml_init": (c_void_p, [_InitParams]),
    "ggml_free": (None, [c_void_p]),
    "ggml_log_set": (None, [c_void_p, c_void_p]),
    "ggml_new_tensor_4d": (c_void_p, [c_void_p, c_int, c_int64, c_int64, c_int64, c_int64]),
    "ggml_mul_mat": (c_void_p, [c_void_p, c_void_p, c_void_p]),
    "ggml_flash_attn_ext": (c_void_p, [c_void_p] * 5 + [c_float] * 3),
    "ggml_new_graph": (c_void_p, [c_void_p]),
    "ggml_build_forward_expand": (None, [c_void_p, c_void_p]),
    "ggml_nbytes": (c_size_t, [c_void_p]),
    "ggml_quantize_chunk": (c_size_t, [c_int, c_void_p, c_void_p, c_int64, c_int64, c_int64, c_void_p]),
    "ggml_backend_cpu_init": (c_void_p, []),
    "ggml_backend_cpu_set_n_threads": (None, [c_void_p, c_int]),
    "ggml_backend_cpu_reg": (c_void_p, []),
    "ggml_backend_cpu_buffer_type": (c_void_p, []),
    "ggml_backend_reg_dev_get": (c_void_p, [c_void_p, c_size_t]),
    "ggml_backend_reg_get_proc_address": (c_void_p, [c_void_p, c_char_p]),
    "ggml_backend_alloc_ctx_tensors_from_buft": (c_void_p, [c_void_p, c_void_p]),
    "ggml_backend_buffer_free": (None, [c_void_p]),
    "ggml_backend_buffer_get_base": (c_void_p, [c_void_p]),
    "ggml_backend_buffer_get_size": (c_size_t, [c_void_p]),
    "ggml_backend_dev_supports_op": (c_bool, [c_void_p, c_void_p]),
    "ggml_backend_tensor_set": (None, [c_void_p, c_void_p, c_size_t, c_size_t]),
    "ggml_backend_tensor_get": (None, [c_void_p, c_void_p, c_size_t, c_size_t]),
    "ggml_backend_graph_compute": (c_int, [c_void_p, c_void_p]),
}


_SILENT = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)(lambda _level, _text, _data: None)


def _free(held: Sequence[tuple[Any, int]]) -> None:
    for release, address in reversed(held):
        release(address)


class _Library:
    """ggml's functions, and its CPU; ImportError or OSError where the package is not installed, or is another."""

    def __init__(self, threads: int) -> None:
        found = importlib.util.find_spec("llama_cpp")
        if found is None or found.origin is None:
            raise ImportError("No module named 'llama_cpp'")
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # its threads would run beside who comes next
        folder = Path(found.origin).parent / "lib"
        parts = [ctypes.CDLL(str(folder / f"libggml{part}.so"), ctypes.RTLD_GLOBAL) for part in ("-base", "-cpu")]
        for name, (result, given) in _SIGNATURES.items():
            function = next((getattr(part, name) for part in parts if hasattr(part, name)), None)
            if function is None:
                raise ImportError(f"ggml of {folder} has no {name}")
            function.restype, function.argtypes = result, given
            setattr(self, name, function)
        self.ggml_log_set(_SILENT, None)
        self._held = list[tuple[Any, int]]()
        weakref.finalize(self, _free, self._held)
        self.cpu = self.ggml_backend_cpu_init()
        self.ggml_backend_cpu_set_n_threads(self.cpu, threads)
        self._registry = self.ggml_backend_cpu_reg()
        self.device = self.ggml_backend_reg_dev_get(self._registry, 0)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def context(self) -> int:
        """Where tensors are declared, not allocated."""
        made = int(self.ggml_init(_InitParams(1 << 22, None, True)))
        self._held.append((self.ggml_free, made))
        return made

    def tensor(self, context: int, dtype: str, *shape: int) -> int:
        """A tensor, whose innermost axis comes first."""
        return int(self.ggml_new_tensor_4d(context, TYPES[dtype], *shape, *[1] * (4 - len(shape))))

    def repacked(self) -> int | None:
        """The kind of memory in which weights lie as kernels of this CPU read them."""
        address = self.ggml_backend_reg_get_proc_address(self._registry, b"ggml_backend_dev_get_extra_bufts")
        kinds = ctypes.CFUNCTYPE(ctypes.POINTER(c_void_p), c_void_p)(address)(self.device)
        return int(kinds[0]) if kinds[0] else None

    def allocate(self, context: int, kind: int | None = None) -> None:
        """Memory for all tensors of a context, in huge pages."""
        buffer = self.ggml_backend_alloc_ctx_tensors_from_buft(context, kind or self.ggml_backend_cpu_buffer_type())
        self._held.append((self.ggml_backend_buffer_free, buffer))
        base, size = self.ggml_backend_buffer_get_base(buffer), self.ggml_backend_buffer_get_size(buffer)
        begin = -(-base // 4096) * 4096
        ctypes.CDLL(None).madvise(c_void_p(begin), c_size_t(base + size - begin), _MADV_HUGEPAGE)

    def put(self, tensor: int, numbers: Array) -> None:
        """Write a tensor: quantized, and repacked where it lies in such memory."""
        data = np.ascontiguousarray(numbers)
        self.ggml_backend_tensor_set(tensor, data.ctypes.data, 0, data.nbytes)

    def take(self, tensor: int, shape: Sequence[int]) -> Array:
        """The numbers of a result, float32."""
        out = np.empty(shape, np.float32)
        self.ggml_backend_tensor_get(tensor, out.ctypes.data, 0, out.nbytes)
        return out

    def quantized(self, numbers: Array, dtype: str, size: int) -> Array:
        """The bytes of rows of float32 in a format of its own."""
        out, (rows, terms) = np.empty(size, np.uint8), numbers.shape
        self.ggml_quantize_chunk(TYPES[dtype], numbers.ctypes.data, out.ctypes.data, 0, rows, terms, None)
        return out

    def turn(self, context: int, results: Sequence[int]) -> Turn:
        """A call that computes some results, in order."""
        graph = self.ggml_new_graph(context)
        for result in results:
            self.ggml_build_forward_expand(graph, result)

        def turn() -> None:
            if code := self.ggml_backend_graph_compute(self.cpu, graph):
                raise RuntimeError(f"ggml_backend_graph_compute returned {code}")

        return turn


def product(dtype: str, m: int, n: int, k: int, matrices: int, threads: int) -> Made:
    """Some matrices by m vectors, its result held against that of the same weights as float32."""
    try:
        library = _Library(threads)
    except (ImportError, OSError) as error:
        return str(error)
    rng = np.random.default_rng(0)
    numbers, vectors = rng.standard_normal((n, k), np.float32), rng.standard_normal((m, k), np.float32)
    context = library.context()
    x = library.tensor(context, "float32", k, m)
    weights = _weights(library, dtype, numbers, matrices, x)
    results = [library.ggml_mul_mat(context, w, x) for w in weights]
    library.allocate(context)
    library.put(x, vectors)
    turn = library.turn(context, results)
    turn()
    if wrong := _wrong(library.take(results[-1], (m, n)), vectors @ numbers.T):
        return wrong
    return turn, library.ggml_nbytes(weights[0]) * matrices


def _weights(library: _Library, dtype: str, numbers: Array, matrices: int, x: int) -> list[int]:
    """Matrices of the same numbers, repacked where ggml can multiply them so."""
    n, k = numbers.shape
    for kind in (library.repacked(), None):
        context = library.context()
        weights = [library.tensor(context, dtype, k, n) for _ in range(matrices)]
        library.allocate(context, kind)
        if kind is None or library.ggml_backend_dev_supports_op(
            library.device, library.ggml_mul_mat(context, weights[0], x)
        ):
            break
    data = library.quantized(numbers, dtype, library.ggml_nbytes(weights[0]))
    for w in weights:
        library.put(w, data)
    return weights


def attention(dtype: str, shape: tuple[int, int, int, int], layers: int, threads: int) -> Made:
    """A token attends to caches of some layers; `shape` are heads, heads of keys, keys, and the depth of a head."""
    try:
        library = _Library(threads)
    except (ImportError, OSError) as error:
        return str(error)
    heads, groups, keys, depth = shape
    rng = np.random.default_rng(0)
    context = library.context()
    query = library.tensor(context, "float32", depth, 1, heads)
    caches = [library.tensor(context, dtype, depth, keys, groups) for _ in range(2 * layers)]
    scale = 1 / float(np.sqrt(depth))
    results = [
        library.ggml_flash_attn_ext(context, query, k, v, None, scale, 0, 0)
        for k, v in zip(caches[::2], caches[1::2], strict=True)
    ]
    library.allocate(context)
    asked, *given = [rng.standard_normal((rows, depth), np.float32) for rows in (heads, groups * keys, groups * keys)]
    library.put(query, asked)
    for cache, numbers in zip(caches, given * layers, strict=True):
        library.put(cache, library.quantized(numbers, dtype, library.ggml_nbytes(cache)))
    turn = library.turn(context, results)
    turn()
    if wrong := _wrong(
        library.take(results[-1], (heads, depth)), _attended(asked * np.float32(scale), given[0], given[1], groups)
    ):
        return wrong
    return turn, library.ggml_nbytes(caches[0]) * len(caches)


def _attended(query: Array, keys: Array, values: Array, groups: int) -> Array:
    keys, values = (t.reshape(groups, -1, t.shape[-1]) for t in (keys, values))
    scores = query.reshape(groups, -1, query.shape[-1]) @ keys.swapaxes(1, 2)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(weights @ values / weights.sum(-1, keepdims=True)).reshape(query.shape)


def _wrong(made: Array, exact: Array) -> str:
    """What is to be said of a result that is too far from the exact one, if it is."""
    off = float(np.linalg.norm(made - exact) / np.linalg.norm(exact))
    return "" if off <= _SAME else f"its result is {off:.2g} of the exact one off"
