"""The tree of recorded paths: building, running and extending it."""
