"""Model specification, hooked layers, tasks, training."""
