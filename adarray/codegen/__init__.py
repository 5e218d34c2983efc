"""From operation records to C text."""
