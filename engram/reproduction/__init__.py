"""Studies run from one call: what is recorded is kept, what is missing is run, and the report is drawn. No torch here:
each run is a process of its own."""
