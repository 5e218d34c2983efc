"""Builds the C extension modules; everything else stands in pyproject.toml."""

import sys
from pathlib import Path

from setuptools import setup

# A PEP 517 build does not put the project's root on the path, and the kernels are printed
# from the package's own operation records.
sys.path.insert(0, str(Path(__file__).resolve().parent))

MODULES = ("serial", "openmp", "device", "coloring", "seals")

setup(cffi_modules=[f"native/build.py:{name}" for name in MODULES])
