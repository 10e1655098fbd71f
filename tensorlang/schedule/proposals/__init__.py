"""Steps that are found for users: each is applied and proven before it is offered."""
