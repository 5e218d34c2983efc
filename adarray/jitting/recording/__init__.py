"""Recording one run of a function."""
