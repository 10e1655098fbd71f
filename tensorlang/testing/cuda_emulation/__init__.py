"""Run the text of a CUDA kernel on the CPU: `emulate`, `emulate_program`. It needs g++ on Linux, and no GPU.

Each thread is a fiber that runs until it waits, in an order that a seed draws. Asynchronous copies are made at once, or
as late as their waits allow; shared memory begins as garbage; a wait that never ends, an access outside of an array and
a misaligned one are errors. What it cannot find: races that no order of whole pieces between waits shows, missing
proxy fences, and what a misread specification says.
"""

from tensorlang.testing.cuda_emulation.binary import TensorMap
from tensorlang.testing.cuda_emulation.program import emulate_program
from tensorlang.testing.cuda_emulation.runner import emulate, unavailable

__all__ = ["TensorMap", "emulate", "emulate_program", "unavailable"]
