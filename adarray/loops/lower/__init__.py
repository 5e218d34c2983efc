"""From the syntax tree of a loop, and what its variables are, to a kernel of one thread.

================  ==================================================================
module            what it has
================  ==================================================================
`kinds`           types of numbers, and what NumPy and Python make of two of them
`intervals`       whole numbers as affine forms, with proofs of inequalities
`values`          what expressions are: numbers, views of memory, array expressions
`state`           names, statements and parameters of the kernel that is written
`integers`        Python's integers
`numbers`         arithmetic of numbers
`scalars`         functions of numbers, by NumPy's names
`complexes`       complex numbers, as pairs
`views`           basic indexing
`overlap`         whether a statement reads what it has written
`elements`        array expressions, evaluated and stored element by element
`masks`           elements that truth values choose
`gathering`       elements at indices that are read from arrays
`reductions`      sums, products of matrices
`calls`           functions and methods that are understood; more in `arrays`, `stacking` and
                  `pythons`
`expressions`     expressions of the syntax tree
`lists`           lists that the loop appends to
`comprehensions`  the loops that comprehensions stand for
`names`           which names statements read and bind
`statements`      assignments and branches
`carrying`        what iterations pass on to each other
`iteration`       loops: how they begin, go on and end
`functions`       functions of the user's that are called
`kernel`          the whole
================  ==================================================================
"""

from adarray.loops.lower.kernel import lower

__all__ = ["lower"]
