"""Kernels in CUDA C as people write them, with arguments: for tests of `adarray.kernels`."""

from cuda_kernels import blocks, elements, proxies, published, published_paths, warps
from cuda_kernels.case import Case

PROXIES = tuple(proxies.CASES)
# The kernels that people publish, beside those of the design.
MORE = (*published.CASES, *published_paths.CASES, *warps.CASES)
CASES: dict[str, Case] = {
    name: case
    for family in (elements, blocks, proxies, published, published_paths, warps)
    for name, case in family.CASES.items()
}

__all__ = ["CASES", "MORE", "PROXIES", "Case"]
