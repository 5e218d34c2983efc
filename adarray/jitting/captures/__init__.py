"""State that functions read besides their arguments: finding, comparing and restoring it."""
