"""What all else stands on, and nothing of which traces: errors, dtypes, records, scopes."""
