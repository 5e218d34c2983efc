"""Schedules: how the loops of a kernel run on vectors, threads and blocks."""
