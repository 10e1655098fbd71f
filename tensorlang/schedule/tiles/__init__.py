"""Tiles that an intrinsic runs: which they are, and that they compute what it declares."""
