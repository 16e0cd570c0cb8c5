"""From a recipe or a folder to a model: building, checkpoints, small weights, frozen features."""
