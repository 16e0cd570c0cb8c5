"""`python -m engram`, which is also how torchrun starts it."""

from engram.cli import main

main()
