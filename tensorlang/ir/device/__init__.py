"""The device interpreter: the threads of a block in lockstep, and checks of what they do to each other's memory."""
