"""Memory inside a kernel: which arrays share it, on the stack or in the arena."""
