"""The forms for CPUs."""
