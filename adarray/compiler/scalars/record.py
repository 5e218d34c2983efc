"""What is known of one scalar function: how it is written, what it costs, how far it errs.

References
----------
- J.-M. Muller et al., "Handbook of Floating-Point Arithmetic", 2nd ed., Birkhäuser 2018 (ulp).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from adarray.base.scalar import COMPARISONS, LOGICAL, PREDICATES

# Costs of an element in a vector loop: additions, divisions, and functions of the C library.
LIGHT, MEDIUM, HEAVY = 1, 6, 20

Interval = tuple[float, float]
REAL: Interval = (-math.inf, math.inf)
POSITIVE: Interval = (0.0, math.inf)


@dataclass(frozen=True, slots=True)
class Infix:
    """An operator of C between two operands."""

    sign: str


@dataclass(frozen=True, slots=True)
class Template:
    """An expression of C.

    ``{0}``, ``{1}`` stand for operands, ``{type}`` for their type, ``{one}`` for the number 1
    of it, ``{fabs}`` for the C library's function, ``{s}`` for the ending of our helpers.
    """

    text: str


@dataclass(frozen=True, slots=True)
class LibraryFunction:
    """A function of the C library and of CUDA; that of float32 has an ``f`` behind its name."""

    name: str


@dataclass(frozen=True, slots=True)
class Helper:
    """A function of ``native/shared/adarray_math.h``: ``adarray_<name>_f64`` and ``_f32``."""


Spelling = Infix | Template | LibraryFunction | Helper


@dataclass(frozen=True, slots=True)
class VectorVersion:
    """A function of ``native/cpu/adarray_vector.h``.

    Parameters
    ----------
    name : str
    calls_library : bool
        Whether it calls a function of libmvec, so that its last bits depend on the form of
        the loop around it.
    """

    name: str
    calls_library: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarFunction:
    """One scalar function.

    Parameters
    ----------
    name : str
        NumPy's name, or that of `scipy.special`.
    arity : int
    floats : Infix, Template, LibraryFunction, Helper or None
        How it is written for operands of a floating-point dtype; None where there is no such
        function.
    signed, unsigned : str or None
        An expression of C for signed and for unsigned integers; None where kernels do not
        compute it. ``{wide}`` is the unsigned type in which arithmetic wraps, ``{type}`` the
        operands' own, ``{s}`` the ending of its name in our helpers.
    integers_as, truths_as : str or None
        The function that compiled programs hold in its place for integers, such as
        ``"positive"`` for ``floor``, and for truth values, ``"logical_or"`` for ``add``.
    cost : int
        Of an element in a vector loop on a CPU, where an addition costs 1: `LIGHT`, `MEDIUM`
        or `HEAVY`. The least that holds for every dtype and processor.
    flops : int
        Arithmetic operations; 0 where elements are only copied, chosen or compared.
    ulp : float
        Bound of the error of a floating-point result on the CPU, in units in the last place of
        the true one: 0 where nothing is rounded, 0.5 where the result is the nearest number,
        infinity where terms cancel.
    domain : tuple of (float, float)
        For each operand, the interval in which results are real numbers.
    same_as : str or None
        The function that compiled programs hold in its place, whatever the dtype.
    libmvec : int
        Since when the C library has a vector version: 1 glibc 2.22, 2 glibc 2.35; 0 for none.
        Vector and scalar versions differ in the last bits.
    vector_versions : dict
        Functions of our own in place of those, by dtype.
    by_lane : str
        Kinds of dtypes, ``"f"`` or ``"fi"``, for which vector loops call a scalar function for
        each lane, from ``native/cpu/adarray_loops.h``.
    is_call : bool
        Whether it is long: kernels weigh it by what they call, not by what they read.
    cuda_careful : str
        Function of float32 in ``native/cuda/adarray_quick.h`` that takes a care; empty for none.
    cuda_far : bool
        Whether ``native/cuda/adarray_device.h`` has it out of line, for kernels that call many.
    cuda_checked : dict
        Functions of eager kernels on GPUs that mend what CUDA's own do wrong, by dtype.
    slow_in_numpy : bool
        Whether NumPy takes tens of cycles an element although the function itself is cheap.
    faster_in_numpy : frozenset of str
        Dtypes for which NumPy brings AVX-512 versions that one thread of ours does not beat.
    of_spacing : bool
        Whether the result depends on how far apart the numbers of the dtype are, so that no
        wider one computes it.
    constants_alike : bool
        Whether it is the same machine code for whatever constant stands as one of its operands.
    """

    name: str
    arity: int
    floats: Spelling | None
    signed: str | None
    unsigned: str | None
    cost: int
    flops: int
    ulp: float
    domain: tuple[Interval, ...]
    same_as: str | None = None
    integers_as: str | None = None
    truths_as: str | None = None
    libmvec: int = 0
    vector_versions: Mapping[str, VectorVersion] = field(default_factory=dict)
    by_lane: str = ""
    is_call: bool = False
    cuda_careful: str = ""
    cuda_far: bool = False
    cuda_checked: Mapping[str, str] = field(default_factory=dict)
    slow_in_numpy: bool = False
    faster_in_numpy: frozenset[str] = frozenset()
    of_spacing: bool = False
    constants_alike: bool = False

    def __post_init__(self) -> None:
        if len(self.domain) != self.arity:
            raise ValueError(f"scalar function {self.name}: give a domain for each operand")

    @property
    def is_comparison(self) -> bool:
        """Whether it compares two operands of any one dtype."""
        return self.name in COMPARISONS

    @property
    def is_logical(self) -> bool:
        """Whether it reads truth values."""
        return self.name in LOGICAL

    @property
    def is_predicate(self) -> bool:
        """Whether it tells kinds of numbers apart."""
        return self.name in PREDICATES

    @property
    def gives_truth(self) -> bool:
        """Whether its result is a truth value, whatever the operands are."""
        return self.is_comparison or self.is_logical or self.is_predicate

    @property
    def is_heavy(self) -> bool:
        """Whether it costs more than arithmetic."""
        return self.cost >= HEAVY

    @property
    def is_exact(self) -> bool:
        """Whether nothing is rounded."""
        return self.ulp == 0
