"""Passes over loop IR: plain functions from kernel to kernel, listed in the pipeline of each target kind."""
