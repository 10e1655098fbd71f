"""A small decoder: a Llama-like model of a GGUF file, from tokens to tokens, on kernels of tensorlang.

Weights stay as narrow as the file has them. `Decoder.load("model.gguf")` lays them out and compiles five kernels, which
all layers share; `prefill` reads a prompt, `decode` a token of each sequence, `generate` writes the likeliest ones.
"""

from examples.llm.decoder import Decoder

__all__ = ["Decoder"]
