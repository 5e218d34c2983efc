"""Rules by which captured objects of libraries are compared in each call.

They are registered by name: none of these packages is imported for them. What a rule returns is
fingerprinted in turn; a rule of None says that objects never change.
"""

from __future__ import annotations

import importlib
from typing import Any

from adarray.jitting.captures.fingerprints import OpaqueError, register_captured

IMMUTABLE = (
    "datetime:date", "datetime:time", "datetime:timedelta", "datetime:tzinfo", "decimal:Decimal",
    "fractions:Fraction", "uuid:UUID", "re:Pattern", "re:Match", "pathlib:PurePath",
    "ipaddress:_BaseAddress", "ipaddress:_BaseNetwork", "_struct:Struct", "operator:attrgetter",
    "operator:itemgetter", "operator:methodcaller", "zoneinfo:ZoneInfo", "typing:_Final",
    "typing:TypeVar", "_thread:lock", "_thread:RLock", "pandas:Timestamp", "pandas:Timedelta",
    "pandas:Period", "pandas:Interval", "pandas:ExtensionDtype", "pandas:BaseOffset",
    "torch:dtype", "torch:device", "scipy:rv_generic", "numpy:_ArrayFunctionDispatcher",
    "numpy:busdaycalendar",
)  # fmt: skip


def _series(x: Any) -> Any:
    return x.array, x.index, x.name, x.attrs


def _frame(x: Any) -> Any:
    columns = [x.iloc[:, i].array for i in range(x.shape[1])]
    return columns, x.columns, x.index, x.attrs


def _index(x: Any) -> Any:
    return x.array, x.name


def _levels(x: Any) -> Any:
    return list(x.levels), list(x.codes), list(x.names)


def _extension(x: Any) -> Any:
    values = x.to_numpy()
    return x.dtype.name, values if values.dtype != object else values.tolist()


def _categories(x: Any) -> Any:
    return x.codes, x.categories, x.ordered


def _variable(x: Any) -> Any:
    return x.dims, x.values, x.attrs


def _labelled(x: Any) -> Any:
    return x.variable, {k: v.variable for k, v in x.coords.items()}, x.name


def _labelled_set(x: Any) -> Any:
    return dict(x.variables), list(x.coords), x.attrs


_SPARSE = ("data", "indices", "indptr", "coords", "offsets", "rows", "_dict", "_shape")


def _sparse(x: Any) -> Any:
    attributes = vars(x)
    return x.format, {k: attributes[k] for k in _SPARSE if k in attributes}


def _frozen(x: Any) -> Any:
    return x.args, x.kwds, x.dist.name, x.dist.a, x.dist.b


def _tensor(x: Any) -> Any:
    torch: Any = importlib.import_module("torch")
    plain = x.detach().cpu().contiguous()
    data = plain.reshape(-1).view(torch.uint8).numpy() if plain.numel() else b""
    return str(x.dtype), str(x.device), tuple(x.shape), data, x.requires_grad, x.grad


def _bits(x: Any) -> Any:
    return x.state


def _seeds(x: Any) -> Any:
    return x.entropy, x.spawn_key, x.n_children_spawned


def _of_numpy(x: Any) -> Any:
    return x.bit_generator if hasattr(x, "bit_generator") else x.get_state(legacy=False)


def _random(x: Any) -> Any:
    return x.getstate()


def _logger(x: Any) -> Any:
    return x.getEffectiveLevel(), x.disabled, x.manager.disable


def _mapped(x: Any) -> Any:
    return x[:], x.tell()


def _file(x: Any) -> Any:
    if x.closed or not x.readable():
        return id(x)
    raise OpaqueError("it is a file or stream, which may change")


def _counter(x: Any) -> Any:
    return x.default_factory, list(x.items())


for _name in IMMUTABLE:
    register_captured(_name)
for _name, _rule in {
    "pandas:Series": _series, "pandas:DataFrame": _frame, "pandas:Index": _index,
    "pandas:MultiIndex": _levels, "pandas:ExtensionArray": _extension,
    "pandas:Categorical": _categories, "xarray:Variable": _variable,
    "xarray:DataArray": _labelled, "xarray:Dataset": _labelled_set, "scipy:_spbase": _sparse,
    "scipy:rv_frozen": _frozen, "torch:Tensor": _tensor, "numpy:BitGenerator": _bits,
    "numpy:SeedSequence": _seeds, "numpy:Generator": _of_numpy, "numpy:RandomState": _of_numpy,
    "random:Random": _random, "_random:Random": _random, "logging:Logger": _logger,
    "mmap:mmap": _mapped, "_io:_IOBase": _file, "collections:defaultdict": _counter,
}.items():  # fmt: skip
    register_captured(_name, _rule)
