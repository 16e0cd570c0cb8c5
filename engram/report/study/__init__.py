"""Studies filled from records, as Markdown, figures and HTML."""
