"""Candidates on a GPU: arguments that stay in its memory, and the clock that counts there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorlang import nd
from tensorlang.autotune.measuring.arrays import Arguments, Array, Arrays
from tensorlang.autotune.measuring.timing import WAIT_SHARE, Take, waited_nanoseconds
from tensorlang.runtime.executable import Executable
from tensorlang.target.cuda.executable import CudaExecutable


class DeviceArguments:
    """Arguments of kernels that run one after the other on a device; inputs are copied there once."""

    def __init__(self, arrays: Arrays, place: nd.Device) -> None:
        self._place = place
        self._host = Arguments(arrays)
        self._changing = [n for n, arg in enumerate(self._host.args) if self._changes(arg, arrays, n)]
        self.args = [nd.array(arg, place) for arg in self._host.args]

    def _changes(self, arg: Array, arrays: Arrays, number: int) -> bool:
        return number in arrays.overwritten or any(arg is output for output in self._host.outputs)

    def renew(self) -> None:
        """Make them ready for a run: outputs are wrong, overwritten inputs what they were."""
        self._host.renew()
        for n in self._changing:
            self.args[n].copyfrom(self._host.args[n])

    def call(self, kernel: Executable) -> Callable[[], None]:
        """A call of a kernel that returns when the device has done it."""

        def run() -> None:
            kernel(*self.args)
            self._place.sync()

        return run

    def outputs(self) -> list[Array]:
        """What is in the outputs now."""
        places = {id(arg): n for n, arg in enumerate(self._host.args)}
        return [self.args[places[id(output)]].numpy() for output in self._host.outputs]


def device_clock(kernel: Executable, args: Sequence[nd.NDArray]) -> Take:
    """Seconds a call of a kernel, by the kernel's own evaluator, and whether nothing disturbed them.

    On CUDA these are the device's events around calls with a cold L2 cache, which no process of the host disturbs.
    Elsewhere it is the host's clock, from an idle queue until the last call is done.
    """

    def take(_: Callable[[], object], number: int) -> tuple[float, bool]:
        if isinstance(kernel, CudaExecutable):
            return kernel.time_evaluator(number=number, flush_l2=True)(*args).mean, True
        before = waited_nanoseconds()
        seconds = kernel.time_evaluator(number=number)(*args).mean
        waited = waited_nanoseconds() - before
        return seconds, waited <= WAIT_SHARE * seconds * (number + 1) * 1e9

    return take
