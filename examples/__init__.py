"""Whole programs in tensorlang."""
