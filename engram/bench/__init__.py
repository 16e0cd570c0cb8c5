"""Measuring: the same frozen questions for every method, intervals over independent sequences."""

from engram.callable_package import make_callable

make_callable(__name__, "engram.bench.run:bench")
