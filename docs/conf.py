"""Configuration of Sphinx: ``python -m sphinx -W docs docs/_build``."""

import sys
from pathlib import Path

import adarray

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "adarray"
author = "The adarray developers"
copyright = "2026, the adarray developers"  # noqa: A001  (Sphinx's name)
version = release = adarray.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "coveragetable",
    "optable",
    "packagetable",
]
# The last ones are included in other pages.
exclude_patterns = ["_build", "_ext", "_templates", "examples", "jit/speed.rst", "cuda/speed.rst"]
templates_path = ["_templates"]
# Docstrings put names in single backticks, as numpydoc asks.
default_role = "py:obj"
autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False

# Each example is a program of its own; what it prints and draws becomes its page.
sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "image_scrapers": ("matplotlib",),
    "plot_gallery": "True",
}

html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["adarray.css"]
html_title = f"adarray {version}"
html_show_sourcelink = False
# Pages without pages below them: the room is for their wide tables.
html_sidebars = {"index": [], "coming-from": []}
html_theme_options = {
    "navigation_with_keys": False,
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "header_links_before_dropdown": 6,
}
