"""Fusion: which values one kernel computes."""
