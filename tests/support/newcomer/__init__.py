"""Programs of people who never heard of adarray, written as they would be for NumPy alone."""
