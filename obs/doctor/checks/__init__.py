"""One check a file: ``ID``, a docstring that says why it matters and how to mend it, ``check(facts)``."""
