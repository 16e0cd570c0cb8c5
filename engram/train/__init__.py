"""Training: one loop for every method, its checkpoints, and how a recipe becomes a model."""
