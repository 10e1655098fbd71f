"""Random cases without end, in processes of their own: `python -m tensorlang.testing soak --seconds N`.

A case is a kind and a seed; `kinds.KINDS` is the table of kinds. `running.soak` runs them, `counts` keeps what became
of them, and each fault is written at once with the command that runs it again.
"""
