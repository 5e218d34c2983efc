"""Random array programs, timed beside other libraries."""
