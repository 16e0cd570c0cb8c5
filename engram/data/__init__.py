"""Images on disk become stores, stores become episodes and streams."""
