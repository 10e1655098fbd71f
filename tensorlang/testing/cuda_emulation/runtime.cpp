// The machine, as one unit of compilation.
#include "faults.cpp"
#include "matrices.cpp"
#include "memory.cpp"
#include "numbers.cpp"
#include "tensor_copies.cpp"
#include "threads.cpp"
