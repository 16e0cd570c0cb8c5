"""Asking a model: frozen tasks, metrics, per-task results."""
