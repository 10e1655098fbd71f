"""Logs of other tuners, read into records of ours."""
