"""Architectures of timm and transformers, with random weights, beside PyTorch: by night, where they are installed."""

from __future__ import annotations

from typing import Any

import pytest

from tensorlang.networks.compiling import compile_network
from tensorlang.networks.torch import from_torch, report
from tensorlang.networks.torch.backend import compile_graph
from tests.thoroughness import NIGHTLY

torch = pytest.importorskip("torch")
nn = torch.nn

pytestmark = pytest.mark.skipif(not NIGHTLY, reason="each architecture takes half a minute")

IMAGES = [
    "resnet18", "resnet50", "seresnext26d_32x4d", "res2net50_26w_4s", "densenet121", "vgg11", "dla34", "cspresnet50",
    "mobilenetv2_100", "mobilenetv3_large_100", "mnasnet_small", "ghostnet_050", "efficientnet_b0",
    "tf_efficientnet_lite0", "regnetx_002", "regnety_002", "repvgg_a0", "convnext_atto", "convnextv2_atto",
    "poolformer_s12", "mobilevit_xxs", "edgenext_xx_small", "levit_128s", "vit_tiny_patch16_224",
    "deit_tiny_patch16_224", "mixer_s32_224", "xcit_nano_12_p16_224",
]  # fmt: skip
SMALL = {
    "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "use_cache": False,
}  # fmt: skip
TWO_SIDED = {
    "vocab_size": 100, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "use_cache": False, "bos_token_id": 1,
    "eos_token_id": 2, "pad_token_id": 0, "decoder_start_token_id": 1,
}  # fmt: skip
PATCHES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
TEXTS: dict[str, tuple[dict[str, Any], str]] = {
    "Bert": (SMALL, "ids mask"),
    "Roberta": (SMALL | {"max_position_embeddings": 40}, "ids mask"),
    "MobileBert": (SMALL | {"embedding_size": 16, "true_hidden_size": 16, "intra_bottleneck_size": 16}, "ids mask"),
    "GPT2": ({"vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 4, "use_cache": False}, "ids mask"),
    "GPTNeoX": (SMALL, "ids"),
    "Llama": (SMALL | {"num_key_value_heads": 2}, "ids mask"),
    "Mistral": (SMALL | {"num_key_value_heads": 2, "sliding_window": 4}, "ids"),
    "Qwen2": (SMALL | {"num_key_value_heads": 2}, "ids"),
    "Gemma": (SMALL | {"num_key_value_heads": 1, "head_dim": 8}, "ids"),
    "Phi": (SMALL, "ids"),
    "T5": ({"vocab_size": 100, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
            "use_cache": False}, "ids answer"),
    "Bart": (TWO_SIDED, "ids mask answer"),
    "Whisper": (TWO_SIDED | {"num_mel_bins": 8, "max_source_positions": 20}, "sound answer"),
    "Wav2Vec2": (PATCHES | {"num_hidden_layers": 1, "conv_dim": (16, 16), "conv_kernel": (10, 3), "conv_stride": (5, 2),
                            "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 4}, "wave"),
    "ViT": (PATCHES, "image"),
    "DeiT": (PATCHES, "image"),
    "Swin": ({"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4],
              "window_size": 4}, "image"),
}  # fmt: skip


class Tensors(nn.Module):  # type: ignore[misc, name-defined]
    """A model of transformers, which returns the tensors among its outputs as a dict."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: Any) -> dict[str, Any]:
        """The outputs that are tensors."""
        return {name: v for name, v in self.model(**inputs).items() if isinstance(v, torch.Tensor)}


def same(made: Any, wanted: Any) -> None:
    """Outputs are near to those of PyTorch, measured by their largest values."""
    leaves = torch.utils._pytree.tree_leaves
    for got, want in zip(leaves(made), leaves(wanted), strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype) and want.any()
        assert float((got - want).abs().max()) <= 2e-5 * float(want.abs().max())


@pytest.mark.parametrize("name", IMAGES)
def test_images(name: str) -> None:
    timm = pytest.importorskip(
        "timm", reason="timm, or the torchvision that it needs, is missing", exc_type=ImportError
    )
    torch.manual_seed(0)
    try:
        module = timm.create_model(name, img_size=64).eval()
    except TypeError:  # a network of convolutions, which takes any size
        module = timm.create_model(name).eval()
    size = module.pretrained_cfg["input_size"][1] if module.pretrained_cfg.get("fixed_input_size") else 64
    x = torch.randn(1, 3, size, size)
    with torch.no_grad():
        for parameter in module.parameters():
            if not parameter.any():  # heads that begin with zeros
                parameter.normal_(std=0.1)
        same(compile_network(from_torch(module, x))(x), module(x))


def drawn(words: str) -> dict[str, Any]:
    """Inputs by the names of transformers."""
    torch.manual_seed(0)
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, 8:] = 0
    ids = torch.randint(3, 90, (2, 12))
    found = {
        "ids": ("input_ids", ids), "mask": ("attention_mask", mask), "answer": ("decoder_input_ids", ids[:, :5]),
        "sound": ("input_features", torch.randn(2, 8, 40)), "wave": ("input_values", torch.randn(1, 400)),
        "image": ("pixel_values", torch.randn(1, 3, 32, 32)),
    }  # fmt: skip
    return dict(found[word] for word in words.split())


@pytest.mark.parametrize("way", ["from_torch", "compile"])
@pytest.mark.parametrize("name", TEXTS)
def test_transformers(name: str, way: str) -> None:
    transformers = pytest.importorskip("transformers", exc_type=ImportError)
    settings, words = TEXTS[name]
    inputs = drawn(words)
    model = getattr(transformers, f"{name}Model")(getattr(transformers, f"{name}Config")(**settings))
    module = Tensors(model).eval()
    with torch.no_grad():
        if way == "from_torch":
            made = compile_network(from_torch(module, (), inputs))(**inputs)
        else:
            torch._dynamo.reset()
            made = torch.compile(module, backend=compile_graph)(**inputs)
            assert report()[-1].taken
        same(made, module(**inputs))
