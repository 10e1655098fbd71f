"""Search spaces for GPUs: rules that make sketches of blocks and threads, one file each.

The rules see the same groups of stages as those for CPUs, and are asked in the order of `RULES`: rows of a block, tiles
of reductions with reuse, sums by the threads of a block, elements. What a rule schedules is a kernel of its own.
"""
