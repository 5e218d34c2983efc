"""The exceptions that adarray raises.

::

    ADArrayError
     +-- ShapeError (ValueError)            operands or results of a wrong shape
     +-- DTypeError (TypeError)             a dtype that cannot take part
     +-- TraceError (TypeError)             a value would leave the graph unseen
     +-- NotDifferentiableError             no derivative is known for a function
     |    +-- UnsupportedFunctionError (TypeError)   NumPy's "not implemented" answer
     +-- BackendError (RuntimeError)        a backend is unknown, broken or misused
          +-- CompileError                  generated source did not compile

A message reads *operation: what, which operand, what was got, what to do*.
"""

from __future__ import annotations


class ADArrayError(Exception):
    """Base class of all errors that adarray raises on purpose."""


class ShapeError(ADArrayError, ValueError):
    """An operand or a result has a shape that the operation cannot take."""


class DTypeError(ADArrayError, TypeError):
    """An operand has a dtype that the operation cannot take."""


class TraceError(ADArrayError, TypeError):
    """A traced value would silently leave the graph, and its gradient with it."""


class NotDifferentiableError(ADArrayError):
    """A function, or an argument of it, has no derivative rule here."""


class UnsupportedFunctionError(NotDifferentiableError, TypeError):
    """A NumPy function that adarray does not know at all.

    It is a `TypeError` too, because that is what NumPy raises for a function
    that a duck array does not implement.
    """


class BackendError(ADArrayError, RuntimeError):
    """A backend is unknown, failed to load, or was given a wrong option."""


class CompileError(BackendError):
    """Generated source did not compile.

    Attributes
    ----------
    source : str
        Path of the generated source file.
    """

    def __init__(self, message: str, source: str) -> None:
        super().__init__(message)
        self.source = source
