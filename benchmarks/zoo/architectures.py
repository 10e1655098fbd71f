"""Architectures of torchvision, timm and transformers: random weights, small sizes, all kinds of their layers."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

SEED = 0


@dataclass(frozen=True, slots=True)
class Architecture:
    """A module by name: `make` returns it, for the inputs that `words` name (see `example`).

    `package`: what has to be installed. `sizes`: of images, (height, width).
    """

    name: str
    package: str
    make: Callable[[], Any]
    words: str = "image"
    sizes: tuple[int, int] = (64, 64)

    @property
    def missing(self) -> bool:
        """Whether its package is not installed."""
        return importlib.util.find_spec(self.package) is None

    def module(self) -> Any:
        """The module for inference, which takes its inputs by name; no array of its weights is all zeros."""
        import torch

        torch.manual_seed(SEED)
        made = self.make().eval()
        with torch.no_grad():
            for parameter in made.parameters():
                if parameter.dim() > 1 and not parameter.any():  # heads that begin with zeros
                    parameter.normal_(std=0.1)
        return _tensors(made, self.words.split() == ["image"])

    def example(self) -> dict[str, Any]:
        """Inputs by name: tensors of PyTorch."""
        import torch

        torch.manual_seed(SEED)
        mask = torch.ones(2, 12, dtype=torch.long)
        mask[1, 8:] = 0
        ids = torch.randint(3, 90, (2, 12))
        found = {
            "ids": ("input_ids", ids), "mask": ("attention_mask", mask), "answer": ("decoder_input_ids", ids[:, :5]),
            "sound": ("input_features", torch.randn(2, 8, 40)), "wave": ("input_values", torch.randn(1, 400)),
            "picture": ("pixel_values", torch.randn(1, 3, *self.sizes)), "image": ("x", torch.randn(1, 3, *self.sizes)),
        }  # fmt: skip
        return dict(found[word] for word in self.words.split())


def _tensors(made: Any, plain: bool) -> Any:
    """A module that takes its inputs by name, and returns the tensors among its outputs by name."""
    import torch

    class Tensors(torch.nn.Module):  # type: ignore[misc]
        """See above."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = made

        def forward(self, **inputs: Any) -> dict[str, Any]:
            """The outputs that are tensors."""
            found = self.inner(*inputs.values()) if plain else self.inner(**inputs)
            named = found if isinstance(found, Mapping) else {"y": found}
            return {name: value for name, value in named.items() if isinstance(value, torch.Tensor)}

    return Tensors().eval()


def _vision(name: str, size: int = 64, **settings: Any) -> Architecture:
    """A network of torchvision."""

    def make() -> Any:
        models = importlib.import_module("torchvision.models")
        weights = {"weights_backbone": None} if hasattr(models.segmentation, name) else {}
        return models.get_model(name, weights=None, **weights, **settings)

    return Architecture(name, "torchvision", make, sizes=(size, size))


def _parts(name: str, builder: str, size: int, **settings: Any) -> Architecture:
    """A network of torchvision, made of its parts with few layers."""

    def make() -> Any:
        return getattr(importlib.import_module("torchvision.models"), builder)(**settings)

    return Architecture(name, "torchvision", make, sizes=(size, size))


def _timm(name: str, size: int = 64, **settings: Any) -> Architecture:
    """A network of timm."""

    def make() -> Any:
        return importlib.import_module("timm").create_model(name, **settings)

    return Architecture(name, "timm", make, sizes=(size, size))


def _text(name: str, words: str, settings: Mapping[str, Any], model: str = "", size: int = 32) -> Architecture:
    """A model of transformers, by its config."""

    def make() -> Any:
        package = importlib.import_module("transformers")
        config = getattr(package, f"{name}Config")(**settings)
        return getattr(package, model or f"{name}Model")(config)

    return Architecture(model or name, "transformers", make, words, (size, size))


_SMALL = {
    "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "use_cache": False,
}  # fmt: skip
_TWO_SIDED = {
    "vocab_size": 100, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "use_cache": False, "bos_token_id": 1,
    "eos_token_id": 2, "pad_token_id": 0, "decoder_start_token_id": 1,
}  # fmt: skip
_PATCHES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
_GROUPED = _SMALL | {"num_key_value_heads": 2}
_GPT2 = {"vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 4, "use_cache": False}
_ONE_TOKEN = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}

IMAGES = (
    _vision("alexnet"),
    _vision("resnet18"),
    _vision("resnext50_32x4d"),
    _vision("densenet121"),
    _vision("squeezenet1_1"),
    _vision("googlenet", init_weights=False),
    _vision("inception_v3", 80, init_weights=False),
    _vision("mobilenet_v2"),
    _vision("mobilenet_v3_small"),
    _vision("mnasnet0_5"),
    _vision("shufflenet_v2_x0_5"),
    _vision("efficientnet_b0"),
    _vision("regnet_y_400mf"),
    _vision("convnext_tiny"),
    _parts("vit", "VisionTransformer", 32, image_size=32, patch_size=8, num_layers=2, num_heads=4, hidden_dim=64,
           mlp_dim=128),
    _parts("swin", "SwinTransformer", 64, patch_size=[4, 4], embed_dim=32, depths=[2, 2], num_heads=[2, 4],
           window_size=[4, 4]),
    _parts("maxvit", "MaxVit", 64, input_size=(64, 64), stem_channels=16, partition_size=2, block_channels=[16, 32],
           block_layers=[1, 1], head_dim=8, stochastic_depth_prob=0.2),
    _vision("fcn_resnet50"),
    _vision("deeplabv3_mobilenet_v3_large"),
    _vision("lraspp_mobilenet_v3_large"),
    _timm("seresnext26d_32x4d"),
    _timm("res2net50_26w_4s"),
    _timm("dla34"),
    _timm("cspresnet50"),
    _timm("mixnet_s"),
    _timm("ghostnet_050"),
    _timm("repvgg_a0"),
    _timm("nfnet_l0"),
    _timm("convnextv2_atto"),
    _timm("poolformer_s12"),
    _timm("mobilevit_xxs"),
    _timm("edgenext_xx_small"),
    _timm("levit_128s", 224),
    _timm("deit_tiny_patch16_224", img_size=64, depth=2),
    _timm("beit_base_patch16_224", img_size=64, depth=2, embed_dim=96, num_heads=4),
    _timm("eva02_tiny_patch14_224", 56, img_size=56, depth=2),
    _timm("swinv2_tiny_window8_256", 64, img_size=64, embed_dim=32, depths=(2, 2), num_heads=(2, 4), window_size=4),
    _timm("mixer_s32_224", img_size=64),
    _timm("xcit_nano_12_p16_224", img_size=64, depth=2),
)  # fmt: skip
"""Networks for images."""

TEXTS = (
    _text("Bert", "ids mask", _SMALL),
    _text("DistilBert", "ids mask", {"vocab_size": 100, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}),
    _text("Roberta", "ids mask", _SMALL | {"max_position_embeddings": 40}),
    _text("MobileBert", "ids mask",
          _SMALL | {"embedding_size": 16, "true_hidden_size": 16, "intra_bottleneck_size": 16}),
    _text("GPT2", "ids mask", _GPT2),
    _text("OPT", "ids mask", _SMALL | _ONE_TOKEN | {"ffn_dim": 64, "word_embed_proj_dim": 32}),
    _text("Bloom", "ids mask", {"vocab_size": 100, "hidden_size": 32, "n_layer": 2, "n_head": 4, "use_cache": False}),
    _text("Llama", "ids mask", _GROUPED),
    _text("Mistral", "ids", _GROUPED | {"sliding_window": 4}),
    _text("Qwen3", "ids", _GROUPED | {"head_dim": 8}),
    _text("Gemma", "ids", _SMALL | {"num_key_value_heads": 1, "head_dim": 8}),
    _text("Phi", "ids", _SMALL),
    _text("T5", "ids answer", {"vocab_size": 100, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
                               "use_cache": False}),
    _text("Bart", "ids mask answer", _TWO_SIDED),
    _text("Whisper", "sound answer", _TWO_SIDED | {"num_mel_bins": 8, "max_source_positions": 20}),
    _text("Wav2Vec2", "wave", _PATCHES | {
        "num_hidden_layers": 1, "conv_dim": (16, 16), "conv_kernel": (10, 3), "conv_stride": (5, 2),
        "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 4}),
    _text("ViT", "picture", _PATCHES),
    _text("CLIPVision", "picture", _PATCHES, "CLIPVisionModel"),
    _text("Dinov2", "picture", _PATCHES),
    _text("Swin", "picture", {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [1, 1],
                              "num_heads": [2, 4], "window_size": 4}),
    _text("Segformer", "picture", {
        "depths": [1, 1], "num_encoder_blocks": 2, "hidden_sizes": [16, 32], "num_attention_heads": [1, 2],
        "sr_ratios": [2, 1], "patch_sizes": [7, 3], "strides": [4, 2], "mlp_ratios": [2, 2], "decoder_hidden_size": 16,
    }, "SegformerForSemanticSegmentation", 64),
)  # fmt: skip
"""Models for text, sound and images with attention."""

ARCHITECTURES = (*IMAGES, *TEXTS)
