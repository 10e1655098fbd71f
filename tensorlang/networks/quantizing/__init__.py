"""Networks in fewer bits: which arrays become integers, how large they are, and how far results are from floats."""
