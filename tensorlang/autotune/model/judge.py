"""How candidates of a target are judged before they are measured: the estimate and the features of its kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from tensorlang.autotune.model.estimate import Estimate, Machine, estimate
from tensorlang.autotune.model.features import feature_names, features
from tensorlang.autotune.model.gpu_estimate import gpu_estimate
from tensorlang.autotune.model.gpu_features import gpu_feature_names, gpu_features
from tensorlang.autotune.model.gpu_machine import GpuMachine
from tensorlang.autotune.model.nest import Nest
from tensorlang.dataclass import dataclass
from tensorlang.target.rates import Core
from tensorlang.target.spec import Target


@dataclass(frozen=True, slots=True)
class Judge:
    """The estimate of nests in seconds, their features given that, and what the features are called."""

    estimate: Callable[[Sequence[Nest]], Estimate]
    features: Callable[[Sequence[Nest], Estimate], npt.NDArray[np.float32]]
    names: Callable[[], tuple[str, ...]]


def judge_of(target: Target, threads: int, core: Core | None = None) -> Judge:
    """The judge of a target; `threads` of a CPU, and its `core` as it was measured, else a usual one of its name."""
    if target.can.device:
        gpu = GpuMachine.of(target)
        return Judge(
            lambda nests: gpu_estimate(nests, gpu),
            lambda nests, guess: gpu_features(nests, guess, gpu),
            gpu_feature_names,
        )
    cpu = Machine.of(target, core)
    return Judge(
        lambda nests: estimate(nests, cpu, threads), lambda nests, guess: features(nests, guess, cpu), feature_names
    )
