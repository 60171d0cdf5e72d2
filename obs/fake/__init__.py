"""A stand-in for an inference server: the pages of the real one, from a small live model or a recording."""
