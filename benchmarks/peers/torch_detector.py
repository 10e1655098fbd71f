"""A detector like YOLOv8-n: convolutions with norm and SiLU, split and joined blocks, a pyramid, and three heads.

Structure and widths are those of YOLOv8 (Ultralytics, 2023) at depth 1/3 and width 1/4, for 80 classes; weights are
random.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import torch
from torch import nn

Tensor: TypeAlias = torch.Tensor
CLASSES, BINS = 80, 16
"""What is told apart; and the distances from a place to an edge of a box, of which their softmax takes the mean."""
STRIDES = (8, 16, 32)
_GAIN = math.sqrt(2)
"""With which what passes through convolutions and SiLU stays below 1, and does not vanish."""


class Unit(nn.Module):  # type: ignore[misc]
    """A convolution, its norm, and SiLU."""

    def __init__(self, channels: int, filters: int, window: int = 1, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, window, stride, window // 2, bias=False)
        self.norm = nn.BatchNorm2d(filters, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        """Of an image."""
        found: Tensor = nn.functional.silu(self.norm(self.conv(x)))
        return found


class Bottleneck(nn.Module):  # type: ignore[misc]
    """Two windows of 3 * 3, with a residual where `adds`."""

    def __init__(self, channels: int, adds: bool) -> None:
        super().__init__()
        self.adds, self.units = adds, nn.Sequential(*(Unit(channels, channels, 3) for _ in range(2)))

    def forward(self, x: Tensor) -> Tensor:
        """Of an image."""
        made: Tensor = self.units(x)
        return x + made if self.adds else made


class Split(nn.Module):  # type: ignore[misc]
    """C2f: half of the channels go through bottlenecks, and all that was on the way is joined."""

    def __init__(self, channels: int, filters: int, count: int, adds: bool = False) -> None:
        super().__init__()
        half = filters // 2
        self.first, self.last = Unit(channels, filters), Unit((2 + count) * half, filters)
        self.blocks = nn.ModuleList(Bottleneck(half, adds) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        """Of an image."""
        parts = list(self.first(x).chunk(2, 1))
        for block in self.blocks:
            parts.append(block(parts[-1]))
        found: Tensor = self.last(torch.cat(parts, 1))
        return found


class Pyramid(nn.Module):  # type: ignore[misc]
    """SPPF: the largest of windows of 5 * 5, three times one behind the other, joined."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.last = Unit(channels, channels // 2), Unit(2 * channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        """Of an image."""
        parts = [self.first(x)]
        for _ in range(3):
            parts.append(nn.functional.max_pool2d(parts[-1], 5, 1, 2))
        found: Tensor = self.last(torch.cat(parts, 1))
        return found


class Head(nn.Module):  # type: ignore[misc]
    """Distances to the edges of a box, in bins, and scores of classes, for each place of an image."""

    def __init__(self, channels: int, width: int, depth: int) -> None:
        super().__init__()
        self.box, self.score = (
            nn.Sequential(Unit(channels, n, 3), Unit(n, n, 3), nn.Conv2d(n, made, 1))
            for n, made in ((width, 4 * BINS), (depth, CLASSES))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Of an image [batch, channels, rows, columns]: [batch, 4 * bins + classes, places]."""
        return torch.cat([self.box(x), self.score(x)], 1).flatten(2)


class Detector(nn.Module):  # type: ignore[misc]
    """Of images of `size` pixels: boxes (middle, width and height, as shares of the image) and scores of all places."""

    def __init__(self, size: int = 640) -> None:
        super().__init__()
        self.size = size
        self.third = nn.Sequential(
            Unit(3, 16, 3, 2), Unit(16, 32, 3, 2), Split(32, 32, 1, True), Unit(32, 64, 3, 2), Split(64, 64, 2, True)
        )
        self.fourth = nn.Sequential(Unit(64, 128, 3, 2), Split(128, 128, 2, True))
        self.fifth = nn.Sequential(Unit(128, 256, 3, 2), Split(256, 256, 1, True), Pyramid(256))
        self.up = nn.ModuleList([Split(384, 128, 1), Split(192, 64, 1)])
        self.steps = nn.ModuleList([Unit(64, 64, 3, 2), Unit(128, 128, 3, 2)])
        self.down = nn.ModuleList([Split(192, 128, 1), Split(384, 256, 1)])
        self.heads = nn.ModuleList(Head(n, 64, CLASSES) for n in (64, 128, 256))
        places = [(x + 0.5, y + 0.5, n) for n in STRIDES for y in range(size // n) for x in range(size // n)]
        places_of_all = torch.tensor(places).T
        self.register_buffer("middles", places_of_all[:2])
        self.register_buffer("shares", places_of_all[2:] / size)
        self.register_buffer("bins", torch.arange(BINS, dtype=torch.float32).reshape(1, BINS, 1, 1))
        _draw(self)

    def forward(self, x: Tensor) -> Tensor:
        """Of images [batch, 3, size, size]: [batch, 4 + classes, places]."""
        third = self.third(x)
        fourth = self.fourth(third)
        fifth = self.fifth(fourth)
        wide = self.up[0](torch.cat([_twice(fifth), fourth], 1))
        small = self.up[1](torch.cat([_twice(wide), third], 1))
        middle = self.down[0](torch.cat([self.steps[0](small), wide], 1))
        large = self.down[1](torch.cat([self.steps[1](middle), fifth], 1))
        made = torch.cat([head(level) for head, level in zip(self.heads, (small, middle, large), strict=True)], 2)
        edges, scores = made.split([4 * BINS, CLASSES], 1)
        return torch.cat([self.boxes(edges), scores.sigmoid()], 1)

    def boxes(self, edges: Tensor) -> Tensor:
        """Of distances in bins [batch, 4 * bins, places]: [batch, 4, places]."""
        batch, _, places = edges.shape
        chances = edges.reshape(batch, 4, BINS, places).transpose(1, 2).softmax(1)
        before, behind = (chances * self.bins).sum(1).chunk(2, 1)
        first, last = self.middles - before, self.middles + behind
        return torch.cat([(first + last) / 2, last - first], 1) * self.shares


def _twice(x: Tensor) -> Tensor:
    """Each pixel four times."""
    return nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")


def _draw(module: Any) -> None:
    """Random weights; norms that change little."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.normal_(part.weight, std=_GAIN / math.sqrt(part.weight[0].numel()))
            if part.bias is not None:
                nn.init.normal_(part.bias, std=0.1)
        elif isinstance(part, nn.BatchNorm2d):
            for held in (part.weight, part.running_var):
                nn.init.uniform_(held, 0.9, 1.1)
            for held in (part.bias, part.running_mean):
                nn.init.uniform_(held, -0.1, 0.1)
