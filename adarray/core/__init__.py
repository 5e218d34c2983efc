"""Tracing and the reverse graph: dispatch, in-place writes, views, saved values, the refusals."""
