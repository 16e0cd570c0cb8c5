"""The commands of `engram`: what each takes and which call it makes. No logic."""
