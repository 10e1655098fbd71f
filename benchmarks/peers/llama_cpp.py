"""llama.cpp in this process, by the package llama-cpp-python: tokens in, logits out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


class Reference:
    """A model of a GGUF file with an empty cache of some tokens; ImportError where the package is not installed."""

    def __init__(self, path: str, context: int, threads: int) -> None:
        from llama_cpp import llama_cpp as library

        self._library: Any = library
        library.llama_backend_init()
        options = library.llama_model_default_params()
        options.n_gpu_layers = 0
        self._model = library.llama_model_load_from_file(path.encode(), options)
        sizes = library.llama_context_default_params()
        sizes.n_ctx, sizes.n_batch, sizes.n_ubatch = context, context, 512
        sizes.n_threads = sizes.n_threads_batch = threads
        self._context = library.llama_init_from_model(self._model, sizes)
        self._width = library.llama_vocab_n_tokens(library.llama_model_get_vocab(self._model))

    def forget(self) -> None:
        """Empty the cache."""
        self._library.llama_memory_clear(self._library.llama_get_memory(self._context), True)

    def read(self, tokens: Sequence[int]) -> npt.NDArray[np.float32]:
        """Put tokens into the cache; the logits behind the last."""
        array = (self._library.llama_token * len(tokens))(*tokens)
        code = self._library.llama_decode(self._context, self._library.llama_batch_get_one(array, len(tokens)))
        if code:
            raise RuntimeError(f"llama_decode returned {code}")
        return np.ctypeslib.as_array(self._library.llama_get_logits_ith(self._context, -1), (self._width,)).copy()
