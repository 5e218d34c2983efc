"""All kinds of captured state; importing this module fills `captured_kinds.KINDS`.

For tests of captured state.
"""

from __future__ import annotations

import captured_kinds_arrays
import captured_kinds_builtins
import captured_kinds_classes
import captured_kinds_functions
from captured_kinds_arrays import NEEDS

__all__ = [
    "ADVANCING",
    "NEEDS",
    "OF_THE_PROCESS",
    "captured_kinds_arrays",
    "captured_kinds_builtins",
    "captured_kinds_classes",
    "captured_kinds_functions",
]

# Kinds of which calls change what they read.
ADVANCING = frozenset({
    "append_of_a_list", "an_iterator", "a_generator", "counters_of_itertools",
    "an_enumeration_of_a_list", "random_of_python", "a_method_of_random", "a_bit_generator",
    "a_stream_of_text", "counters_in_a_closure", "results_of_caches",
})  # fmt: skip
# Kinds whose changes are seen by everything in the process: they are made in order, and the last
# one undoes the others.
OF_THE_PROCESS = frozenset({
    "arguments_of_the_process", "the_context_of_decimal", "how_errors_are_handled",
    "how_arrays_are_printed", "filters_of_warnings", "limits_of_the_interpreter",
    "functions_of_numpy_that_are_replaced", "functions_of_submodules_that_are_replaced",
    "levels_of_logging", "of_the_process", "imports_inside_of_the_function",
})  # fmt: skip
