"""Machine code through LLVM, for CPUs."""
