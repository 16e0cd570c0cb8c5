"""What an answer must not depend on: the audit."""
