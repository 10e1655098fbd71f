"""Kernels outside of any process of ours: functions that C, and whoever calls C, can call."""
