"""Whether two results differ by rounding alone, as a computation in double precision says.

Some programs have values that are zero but for rounding: the mean of what was centred, the gradient
by a shift of what is centred later. Engines then agree in no digit, and none of them is wrong. So
where engines disagree, the program is computed in double precision, and a result is right whose
errors are not much larger than those of the engine that it was compared with.

References
----------
- N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., SIAM 2002, section 1.6
  (forward errors of ill-conditioned problems).
"""

from __future__ import annotations

import numpy as np

import adarray
from asv_bench.random_programs.programs import compiled, program_of
from asv_bench.worker import digest_of

# Times as large as the other engine's an error may be: sums in another order, other functions.
FACTOR = 10.0
# What the other engine's error is at most, in numbers of programs whose values are near one: with
# larger ones it is no measure.
ROUNDING = 1e-5


def exact(name: str) -> list[float]:
    """Return the digest of a program that is computed in double precision throughout."""
    program = program_of(name)
    f = compiled(program.text.replace("np.float32", "np.float64"))
    rng = np.random.default_rng(0)
    values = {}
    for varies in (True, False):  # in the order in which engines get them
        for x in program.arguments:
            if x.varies == varies:
                values[x.name] = x.values(rng)
    arrays = [
        x.astype(np.float64) if x.dtype == np.float32 else x
        for x in (values[a.name] for a in program.arguments)
    ]
    count = sum(a.varies for a in program.arguments)
    with adarray.use("numpy"):
        g = adarray.value_and_grad(lambda *xs: f(np, *xs), argnums=tuple(range(count)))
        value, gradients = g(*arrays)
    return digest_of(value, list(gradients))


def rounded_alike(
    digest: list[float], reference: list[float], true: list[float], tolerance: float
) -> bool:
    """Whether the errors of a digest are small, or not much larger than those of the reference.

    Parameters
    ----------
    digest, reference : list of float
        The value, and of each gradient its norm and a projection.
    true : list of float
        The same in double precision.
    tolerance : float
        What a relative error may be.
    """
    if not len(digest) == len(reference) == len(true) or not np.all(np.isfinite(digest)):
        return False
    most = ROUNDING * max(1.0, *map(abs, true))
    groups = [slice(0, 1), *(slice(i, i + 2) for i in range(1, len(true), 2))]
    for group in groups:
        ours, theirs, exact_ = (np.array(x[group]) for x in (digest, reference, true))
        error, other = np.max(np.abs(ours - exact_)), np.max(np.abs(theirs - exact_))
        least = FACTOR * other if other <= most else 0.0
        if not error <= max(tolerance * abs(exact_[0]), least):
            return False
    return True
