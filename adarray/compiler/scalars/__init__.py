"""Scalar functions: how they are written, rewritten and printed."""
