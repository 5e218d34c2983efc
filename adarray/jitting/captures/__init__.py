"""State that functions read beside their arguments: found, compared, put back."""
