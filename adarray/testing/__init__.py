"""Checks of derivatives, operations and backends, for users and for authors of plugins."""

from adarray.testing._backends import check_backend
from adarray.testing._grads import check_grads
from adarray.testing._ops import opcheck

__all__ = ["check_backend", "check_grads", "opcheck"]
