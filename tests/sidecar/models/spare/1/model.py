"""In the repository, never loaded."""
