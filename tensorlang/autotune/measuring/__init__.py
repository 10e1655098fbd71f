"""Measuring candidates: builders and a runner in processes of their own, checked outputs, timing."""
