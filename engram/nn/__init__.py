"""Building blocks: tensors in, tensors out; nothing here knows what a task is."""
