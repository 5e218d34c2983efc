"""What the parts of `jit` share: options, signatures, symbols, keys of values."""
