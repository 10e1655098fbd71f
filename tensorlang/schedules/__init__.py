"""How programs become fast: a form of loops for each kind of computation, on CPUs and on GPUs."""
