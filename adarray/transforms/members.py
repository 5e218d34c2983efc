"""One call of what `adarray.vmap` returns: arguments in, members run, results put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.ad.batches import enter, install, leave
from adarray.base.errors import DTypeError, ShapeError
from adarray.base.frames import is_frame
from adarray.batching import writes as _writes  # noqa: F401  (in-place updates)
from adarray.batching.batch import Batch, SplitError
from adarray.batching.values import is_batched
from adarray.core.inplace import sync_if_view
from adarray.core.protocol import call_function
from adarray.core.trace import Handle, snapshot, tracing
from adarray.device import KINDS, adopt
from adarray.transforms.axes import axes_of, result_axes, size_of
from adarray.transforms.inputs import mirrored, plain_result
from adarray.transforms.running import check_computed, refuse_containers
from adarray.transforms.shared import refuse_captured
from adarray.transforms.tree import flatten, is_array


def run_members(
    f: Callable[..., Any],
    run: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    in_axes: Any,
    out_axes: Any,
    strict: bool = False,
) -> Any:
    """Return the results of `f`, which `run` runs, for all members: see `adarray.vmap`."""
    install()
    leaves, rebuild = flatten((args, kwargs))
    size, axes = size_of(args, kwargs, leaves, axes_of(args, kwargs, in_axes))
    return _Members(f, run, leaves, rebuild, axes, size, strict).results(out_axes)


class _Members:
    """One call for all members.

    Parameters
    ----------
    f : callable
    run : callable
        Runs it.
    leaves : list
        Of the arguments, positional and by keyword.
    rebuild : callable
        Makes these of leaves.
    axes : list of int or None
        Where the members lie in each leaf.
    size : int
        How many there are.
    strict : bool
        See `Batch`.
    """

    def __init__(
        self,
        f: Callable[..., Any],
        run: Callable[..., Any],
        leaves: list[Any],
        rebuild: Any,
        axes: list[int | None],
        size: int,
        strict: bool,
    ) -> None:
        self.strict = strict
        self.f = f
        self.run = run
        self.rebuild = rebuild
        self.size = size
        self.kind = mirrored(leaves)
        self.axes = axes
        self.leaves = [
            x if a is None else _in_front(x, a) for x, a in zip(leaves, axes, strict=True)
        ]

    def results(self, out_axes: Any) -> Any:
        """Run the function, for parts of the members where they go different ways."""
        waiting: list[np.ndarray | None] = [None]  # None: all of them
        done: list[tuple[Any, list[Any], list[bool]]] = []
        rebuild: Any = None
        while waiting:
            numbers = waiting.pop()
            try:
                results, rebuild = self._once(numbers)
            except _GroupsError as own:
                groups = own.groups
                if numbers is not None:
                    groups = [numbers[g] for g in groups]
                waiting += groups[::-1]
                continue
            done.append((numbers, *results))
        leaves, mapped = self._together(done)
        places = result_axes(rebuild, leaves, out_axes)
        return rebuild(
            [self._placed(x, a, own) for x, a, own in zip(leaves, places, mapped, strict=True)]
        )

    def _once(self, numbers: np.ndarray | None) -> Any:
        """Run the function for some of the members."""
        size = self.size if numbers is None else len(numbers)
        with tracing("vmap") as level:
            batch = Batch(size, level, self.strict)
            try:
                leaves, checked = self._entered(batch, numbers)
                args, kwargs = self.rebuild(leaves)
                y = self.run(*args, **kwargs)
                check_computed("vmap", y)
                for k, x, h, before in checked:
                    if h._plain is not before:
                        refuse_captured(self.f, f"vmap: argument {k}", x, "was written into")
                outputs, rebuild = flatten(y)
                refuse_containers("vmap", outputs)
                if any(is_frame(x) for x in outputs):
                    kind = next(type(x).__name__ for x in outputs if is_frame(x))
                    raise DTypeError(
                        f"vmap: the function returned a {kind}, which has no place for an axis of "
                        "members; return its .to_numpy()"
                    )
                results = [_stacked(x, batch, level, self.kind) for x in outputs]
            except (SplitError, ValueError) as error:
                # NumPy wraps what is raised while it converts a value to store it.
                cause = error if isinstance(error, SplitError) else error.__cause__
                if not isinstance(cause, SplitError):
                    raise
                if cause.batch is not batch:
                    raise cause from None
                raise _GroupsError(cause.groups) from None
            finally:
                batch.open = False
        return ([x for x, _ in results], [own for _, own in results]), rebuild

    def _entered(self, batch: Batch, numbers: np.ndarray | None) -> Any:
        """Return the leaves as the function gets them, and those that must not be written into."""
        entered, checked = [], []
        for k, (x, a) in enumerate(zip(self.leaves, self.axes, strict=True)):
            if a is None:  # a write is no more seen outside than into other arguments
                entered.append(snapshot(sync_if_view(x)) if isinstance(x, Handle) else x)
                continue
            part = x if numbers is None else x[numbers]
            h = enter(part, batch)
            if not isinstance(h, Handle):
                h = Handle.array_class(h, None, None, True)
            entered.append(h)
            checked.append((k, x, h, h._plain))
        return entered, checked

    def _together(self, done: list[Any]) -> tuple[list[Any], list[bool]]:
        """Return the results of all members, in their order, from those of parts."""
        _, leaves, mapped = done[0]
        if len(done) == 1:
            return leaves, mapped
        if any(len(part) != len(leaves) for _, part, _ in done):
            raise ShapeError(
                "vmap: members that go different ways return different structures; they must be "
                "equal"
            )
        numbers = np.concatenate([n for n, _, _ in done])
        back = np.argsort(numbers, kind="stable")
        merged = []
        for k in range(len(leaves)):
            parts = [_rows(part[k], own[k], len(n)) for n, part, own in done]
            if any(not is_array(p) for p in parts):
                _check_one(parts)
                merged.append(parts[0])
                continue
            shapes = sorted({np.shape(p)[1:] for p in parts})
            if len(shapes) > 1:
                raise ShapeError(
                    f"vmap: members that go different ways return the shapes {shapes}; they must "
                    "be equal: pad them, or return lists from a loop"
                )
            merged.append(np.concatenate(parts)[back])
        return merged, [True] * len(merged)

    def _placed(self, x: Any, axis: int | None, own: bool) -> Any:
        """Return a result with the members along an axis."""
        if not is_array(x) and not isinstance(x, bool):
            return x
        if axis is None:
            if own:
                raise ShapeError(
                    "vmap: out_axes=None, but the result differs between members; give the axis "
                    "along which they shall lie"
                )
            return x
        x = _rows(x, own, self.size)
        ndim = np.ndim(x)
        if not -ndim <= axis < ndim:
            raise ShapeError(
                f"vmap: out_axes={axis}, but a result has shape {np.shape(x)[1:]} for a member: "
                f"the axis must be from {-ndim} to {ndim - 1}"
            )
        return np.moveaxis(x, 0, axis) if axis % ndim else x


class _GroupsError(Exception):
    """The members of this call go different ways."""

    def __init__(self, groups: list[np.ndarray]) -> None:
        super().__init__()
        self.groups = groups


def _in_front(x: Any, axis: int) -> Any:
    """Return an argument with the axis of the members as the first one."""
    if isinstance(x, Handle):
        sync_if_view(x)
        return x if not axis else call_function(np.moveaxis, (x, axis, 0), {})
    if type(x) in KINDS:
        x = adopt(x)
    return np.moveaxis(x, axis, 0) if axis else x


def _stacked(x: Any, batch: Batch, level: int, kind: Any) -> tuple[Any, bool]:
    """Return a result of all members as the caller gets it, and whether members have their own."""
    if not isinstance(x, Handle):
        return plain_result(x, level, kind), False
    sync_if_view(x)
    own = is_batched(x._plain) and x._plain.batch is batch
    return plain_result(leave(x, batch) if own else x, level, kind), own


def _check_one(parts: list[Any]) -> None:
    """Raise if what is no array differs from member to member: one place cannot hold it.

    Raises
    ------
    TypeError
    """
    first = parts[0]
    if is_array(first) or any(x is not first and (is_array(x) or x != first) for x in parts):
        kinds = ", ".join(sorted({type(x).__name__ for x in parts}))
        raise TypeError(
            f"vmap: members that go different ways return different objects of type {kinds}, which "
            "no array holds; return numbers, or call the function in a loop"
        )


def _rows(x: Any, own: bool, size: int) -> Any:
    """Return a result with an axis of the members in front."""
    if own or not (is_array(x) or isinstance(x, bool)):
        return x
    if isinstance(x, Handle):
        return np.copy(np.broadcast_to(x, (size, *np.shape(x))))  # type: ignore[call-overload]
    return np.array(np.broadcast_to(x, (size, *np.shape(x))))
