"""What a run meets on its machine: devices, memory, locks, signals, failures."""
