"""Several steps of a stencil in one kernel."""
