"""From loops bound to blocks and threads of a GPU to the code of each thread, and a host program that launches it."""

from tensorlang.lowering.device.split import to_device

__all__ = ["to_device"]
