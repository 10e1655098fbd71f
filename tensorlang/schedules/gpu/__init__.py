"""Schedules of the operator library for GPUs: rules by the tag of the stage that they schedule, as on a CPU."""
