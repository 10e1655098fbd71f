"""tensorlang: tensor expressions with proven schedules and an autotuner."""
