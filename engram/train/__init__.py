"""Training: one loop for every method, its checkpoints, and how a recipe becomes a model."""

from engram.callable_package import make_callable

make_callable(__name__, "engram.train.run:train")
