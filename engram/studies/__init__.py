"""The paper's tables and figures, and our own studies, as declared grids: one TOML file each. Nothing imports torch."""

from engram.studies.schema import Cell, Comparison, Row, Scale, ScaleName, Study, load_study, study_names

__all__ = ["Cell", "Comparison", "Row", "Scale", "ScaleName", "Study", "load_study", "study_names"]
