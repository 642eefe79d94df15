"""What the particle tasks share: rules, environment, and the physics of their twins."""
