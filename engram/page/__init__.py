"""The web page: name classes, drop pictures, see answers with their uncertainty, carry the memory on. Loopback only."""
