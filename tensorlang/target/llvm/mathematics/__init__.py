"""Functions of numbers as polynomial code, of the same bits in scalars and in vectors of any width."""
