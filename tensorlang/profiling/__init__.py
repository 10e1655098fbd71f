"""Where the time of a kernel goes: an instrumented build, beside what the machine can do."""

from tensorlang.profiling.advice import Advice
from tensorlang.profiling.machine import Limit, Machine
from tensorlang.profiling.profile import LoopTime, Profile, profile
from tensorlang.profiling.unmeasured import warnings_of

__all__ = ["Advice", "Limit", "LoopTime", "Machine", "Profile", "profile", "warnings_of"]
