"""`ADArray` and what belongs to it: attributes, operators, conversion, signatures."""
