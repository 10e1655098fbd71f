"""Loops in vector registers: rows, their tails, and reads that lie across the lanes."""
