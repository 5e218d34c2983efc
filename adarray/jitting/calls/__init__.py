"""The functions that `jit` returns, and what a call of one does."""
