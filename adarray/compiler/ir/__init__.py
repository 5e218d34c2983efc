"""Programs, loop IR and plans, with what walks, builds, verifies and interprets them."""
