"""Loops shared among threads: what each takes, and the teams that run them."""
