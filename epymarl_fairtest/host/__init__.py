"""Everything that touches a training framework or its checkpoints."""
