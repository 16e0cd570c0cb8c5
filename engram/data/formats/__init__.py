"""Readers of the published dataset formats, one file per family; each finds its form in a folder or says None."""
