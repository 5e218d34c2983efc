"""What is shown of compiled functions: text, pictures, costs."""
