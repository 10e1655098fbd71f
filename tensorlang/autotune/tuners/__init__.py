"""Tuners of templates, in AutoTVM's words: random, grid, genetic, and learning."""
