"""Lets ``engram.train(...)``, ``engram.bench(...)`` and ``engram.quickstart()`` be calls although they are modules."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


def make_callable(package: str, target: str) -> None:
    """Calling the package or module calls ``target`` ("module:function"), which is imported at the first call."""
    module_name, function = target.split(":")

    class CallablePackage(ModuleType):
        def __call__(self, *args: Any, **keywords: Any) -> Any:
            return getattr(import_module(module_name), function)(*args, **keywords)

    sys.modules[package].__class__ = CallablePackage
