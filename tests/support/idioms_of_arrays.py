"""Idioms: writing in place, views and aliases, shapes that depend on values.

For `idiom`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from idiom import M, W, idiom

# -- writing in place ------------------------------------------------------------------------


@idiom
def _item_assignment(x: Any) -> Any:
    y = x * 2
    y[0] = x[1] * x[2]
    return y


@idiom
def _slice_assignment(x: Any) -> Any:
    y = np.zeros_like(x)
    y[1:4] = np.sin(x[:3])
    return y * x


@idiom
def _strided_assignment(x: Any) -> Any:
    y = x.copy()
    y[::2] = y[1::2] ** 2
    return y


@idiom
def _negative_step_assignment(x: Any) -> Any:
    y = x.copy()
    y[::-1] = x * W
    return y


@idiom
def _mask_assignment(x: Any) -> Any:
    y = x.copy()
    y[x > 1] = 1 / x[x > 1]
    return y


@idiom
def _mask_assignment_of_a_number(x: Any) -> Any:
    y = x * x
    y[x < 1] = 0.0
    return y


@idiom
def _mask_times_equals(x: Any) -> Any:
    y = x.copy()
    y[y > 1] *= 3
    return y**2


@idiom
def _index_array_assignment(x: Any) -> Any:
    y = x.copy()
    y[[0, 3, 5]] = x[[1, 1, 2]]
    return np.exp(y)


@idiom
def _repeated_indices_last_one_counts(x: Any) -> Any:
    y = x.copy()
    y[[0, 0]] = x[4:]
    return y


@idiom
def _broadcasting_write(x: Any) -> Any:
    y = np.zeros_like(x, shape=(3, 6))
    y[:] = x
    y[1] = 0.0
    y[:, 2:3] = x[:3, None]
    return y


@idiom
def _ellipsis_and_newaxis(x: Any) -> Any:
    y = x[..., None] * x[None, :]
    y[..., 0] = x
    return y


@idiom
def _augmented_operators(x: Any) -> Any:
    y = x.copy()
    y += x
    y *= W
    y -= 1.0
    y /= x
    y **= 2
    y @= M
    return y


@idiom
def _row_augmented(x: Any) -> Any:
    y = x.reshape(2, 3) * 1.0
    y[0] += y[1]
    y[:, 1] *= y[:, 2]
    return y


@idiom
def _out_argument(x: Any) -> Any:
    y = np.empty_like(x)
    np.exp(x, out=y)
    np.add(y, x, out=y)
    np.multiply(y, y, out=y)
    return y


@idiom
def _out_into_a_row(x: Any) -> Any:
    y = np.zeros_like(x, shape=(2, 6))
    np.sin(x, out=y[1])
    return y


@idiom
def _add_at(x: Any) -> Any:
    y = np.zeros_like(x, shape=3)
    np.add.at(y, [0, 1, 0, 2, 1, 0], x)
    return y**2


@idiom
def _recurrence(x: Any) -> Any:
    y = np.zeros_like(x)
    y[0] = x[0]
    for i in range(1, len(x)):
        y[i] = 0.5 * y[i - 1] + np.tanh(x[i])
    return y


@idiom
def _buffer_used_again(x: Any) -> Any:
    buffer = np.zeros_like(x)
    total = 0.0
    for k in range(3):
        buffer[:] = x * k
        total = total + np.sum(buffer * x)
    return total


@idiom
def _swap_by_tuple(x: Any) -> Any:
    y = x.copy()
    y[0], y[1] = y[1] * 2, y[0] * 3
    return y


@idiom
def _copyto_and_fill(x: Any) -> Any:
    y = np.empty_like(x)
    y.fill(2.0)
    np.copyto(y, x, where=x > 1)
    return y * x


@idiom
def _sort_in_place(x: Any) -> Any:
    y = x.copy()
    y.sort()
    return y * W


@idiom
def _put_and_putmask(x: Any) -> Any:
    y = x.copy()
    np.put(y, [0, 1], x[2:4])
    np.putmask(y, x > 1.5, x * 2)
    return y


# -- views and aliases -----------------------------------------------------------------------


@idiom
def _view_of_a_view(x: Any) -> Any:
    y = x * 1.0
    rows = y.reshape(2, 3)
    column = rows[:, 1]
    column *= 2
    rows.T[2] = x[:2]
    return y


@idiom
def _writing_the_base_changes_the_view(x: Any) -> Any:
    y = x * 1.0
    view = y[1:4]
    y[2] = x[0] * 5
    return view


@idiom
def _alias_of_a_name(x: Any) -> Any:
    y = x * 1.0
    z = y
    z[0] = 7.0
    return y * x


@idiom
def _argument_stays_as_it_was(x: Any) -> Any:
    def overwrite(a: Any) -> Any:
        a = a.copy()
        a[:] = 0
        return a

    return x * (1 + overwrite(x))


@idiom
def _function_writes_into_its_argument(x: Any) -> Any:
    def normalise(a: Any) -> None:
        a /= np.sum(a)

    y = x * x
    normalise(y)
    return y


@idiom
def _rows_of_a_loop_are_views(x: Any) -> Any:
    y = x.reshape(3, 2) * 1.0
    for row in y:
        row[0] = row[1] ** 2
    return y


@idiom
def _transposed_write(x: Any) -> Any:
    y = x.reshape(2, 3) * 1.0
    y.T[0] = y.T[1] * y.T[2]
    return y


@idiom
def _diagonal_written(x: Any) -> Any:
    y = np.outer(x, x)
    np.fill_diagonal(y, 1.0)
    y[np.diag_indices(6)] *= x
    return y


@idiom
def _flat_iteration(x: Any) -> Any:
    return sum(v * k for k, v in enumerate(x.reshape(2, 3).flat))


@idiom
def _squeeze_and_expand(x: Any) -> Any:
    y = np.expand_dims(x, (0, 2)) * 1.0
    y.squeeze()[2] = 0.0
    return y


# -- shapes that depend on values ---------------------------------------------------------------


@idiom
def _boolean_selection(x: Any) -> Any:
    return np.sum(x[x > np.mean(x)] ** 2)


@idiom
def _nonzero_and_where_with_one_argument(x: Any) -> Any:
    (large,) = np.where(x > 1)
    return x[large] * x[np.nonzero(x < 1)[0]][: len(large)]


@idiom
def _argmax_then_index(x: Any) -> Any:
    return x[np.argmax(x)] * x[np.argmin(x)]


@idiom
def _top_k_by_argsort(x: Any) -> Any:
    return np.sum(x[np.argsort(x)[-3:]] * [1.0, 2.0, 3.0])


@idiom
def _unique_values(x: Any) -> Any:
    return np.unique(np.concatenate([x, x])) * W


@idiom
def _searchsorted_bins(x: Any) -> Any:
    edges = np.array([0.5, 1.0, 1.5])
    return x * np.array([1.0, 2.0, 3.0, 4.0])[np.searchsorted(edges, x)]
