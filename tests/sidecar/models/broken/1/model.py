"""Its backend does not exist."""
