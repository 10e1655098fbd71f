"""Templates: schedules written by the user with knobs to tune, in AutoTVM's words."""
