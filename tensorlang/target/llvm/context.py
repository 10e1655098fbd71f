"""The words of the context that exported code hands down: all that a call of it has, instead of a process around it.

Its first word is the status, as in a process.
"""

from __future__ import annotations

NO_MEMORY = -1
"""The status of a call whose scratch block could not be allocated."""
RUNNER, USER, WORKSPACE, PER_TASK, THREADS, TASKS = 8, 16, 24, 32, 40, 48
"""Offsets: the function that runs tasks and its argument; scratch memory of the function that has this context; bytes
of scratch memory for each task, how many tasks there may be, and where their memory begins."""
BYTES = 56
