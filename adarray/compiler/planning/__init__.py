"""Planning: the steps of a program, and the memory of its values."""
