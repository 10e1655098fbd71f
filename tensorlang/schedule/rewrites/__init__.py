"""Rewrites of operations, for the steps that change more than their loops."""
