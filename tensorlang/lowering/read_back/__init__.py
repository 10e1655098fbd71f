"""The kernel that a target gets is read back, and compared with the schedule that was proven: `implemented` begins."""
