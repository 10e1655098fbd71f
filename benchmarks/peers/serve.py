"""What every contestant's process does: build a callable for a workload, save its result, time it.

It is run by the interpreter of the library, so it imports nothing but NumPy. Requests and answers are lines of JSON on
the process's own input and output; whatever a library prints goes to the error stream. A contestant is a module with
`BUILDERS` by operator, and `to_numpy` if its results are no arrays.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

SHORTEST_SAMPLE = 1e-3
"""Seconds: a sample is as many calls in a row as take this long."""
LONG_CALL = 0.25
"""Seconds from which one call is a turn."""

Array = npt.NDArray[Any]
Call = Callable[[], Any]


class Unsupported(Exception):
    """The library does not offer this."""


@dataclass(frozen=True)
class Given:
    """What a builder gets: the inputs by name, those of them that are known ahead, options, and threads.

    Inputs of type bfloat16 come as float32 numbers that bfloat16 holds exactly.
    """

    arrays: dict[str, Array]
    constant: tuple[str, ...]
    options: dict[str, Any]
    threads: int

    def __getitem__(self, name: str) -> Array:
        return self.arrays[name]

    @property
    def in_order(self) -> list[Array]:
        """The inputs `x0`, `x1`, ..., `x10` by their numbers."""
        return [self.arrays[name] for name in sorted(self.arrays, key=lambda name: int(name[1:]))]

    @property
    def dtype(self) -> str:
        """The element type of the inputs."""
        return str(self.options.get("dtype", "float32"))

    def only(self, *dtypes: str) -> None:
        """Refuse other element types."""
        if self.dtype not in dtypes:
            raise Unsupported(f"no {self.dtype} here")


Builder = Callable[[Given], Call]
Builders = Mapping[str, Builder]


def serve(builders: Builders, to_numpy: Callable[[Any], Array], answer: TextIO) -> None:
    """Answer requests until the input ends. A builder's callable returns its result when it is computed."""
    contestant = _Contestant(builders, to_numpy)
    answers: dict[str, Callable[..., dict[str, Any]]] = {
        "prepare": contestant.prepare,
        "result": contestant.result,
        "time": contestant.time,
        "memory": contestant.memory,
    }
    for line in sys.stdin:
        request = json.loads(line)
        answer.write(json.dumps(answers[request.pop("do")](**request)) + "\n")


class _Contestant:
    """The callable in hand."""

    def __init__(self, builders: Builders, to_numpy: Callable[[Any], Array]) -> None:
        self._builders = builders
        self._to_numpy = to_numpy
        self._call: Call | None = None
        self._result: Any = None
        self._calls = 1
        self._seconds = 0.0

    def prepare(
        self, operator: str, folder: str, constant: list[str], options: dict[str, Any], threads: int
    ) -> dict[str, Any]:
        """Build the callable: seconds to the end of its first call, or why there is none."""
        self._call = self._result = None
        gc.collect()
        if operator not in self._builders:
            return {"absent": "not written"}
        arrays = {file.stem: np.load(file) for file in Path(folder).glob("*.npy")}
        start = time.perf_counter()
        try:
            self._call = self._builders[operator](Given(arrays, tuple(constant), options, threads))
            self._result = self._call()
            seconds = time.perf_counter() - start
        except Unsupported as error:
            return {"absent": str(error)}
        except Exception as error:  # a library that fails has no figure; the contest goes on
            return {"failed": f"{type(error).__name__}: {error}"[:500]}
        return {"seconds": seconds}

    def result(self, file: str) -> dict[str, Any]:
        """Save the result of the first call, and find out how many calls make a sample."""
        np.save(file, self._to_numpy(self._result))
        calls, spent = 1, self._sample(1)
        while spent * calls < SHORTEST_SAMPLE:
            calls = max(2 * calls, int(SHORTEST_SAMPLE / max(spent, 1e-9)))
            spent = self._sample(calls)
        self._calls, self._seconds = calls, spent
        return {"seconds": spent}

    def time(self, samples: int) -> dict[str, Any]:
        """Seconds a call of each sample; one more goes before, which fills the caches and wakes the threads.

        Of a long call there is one sample, and none before.
        """
        extra = 1
        if self._seconds > LONG_CALL:
            samples, extra = 1, 0
        gc.disable()
        try:
            seconds = [self._sample(self._calls) for _ in range(samples + extra)]
        finally:
            gc.enable()
        return {"seconds": seconds[extra:]}

    def memory(self) -> dict[str, Any]:
        """The most bytes of memory that the process has had, libraries and all; what it was forked from is no part."""
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return {"bytes": next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))}

    def _sample(self, calls: int) -> float:
        call = self._call
        assert call is not None
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - start) / calls
