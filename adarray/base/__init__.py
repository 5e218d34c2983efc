"""The ground of all packages: errors, dtypes, operation records, scopes. Nothing here traces."""
