"""The documentation site: `python -m sphinx -W -b html docs site`, without network."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent / "src")]

import truetune  # noqa: E402

project = author = "truetune"
copyright = "the truetune authors, Apache-2.0"
version = release = truetune.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
extensions += [
    "rule_pages",
    "settings_page",
    "docstrings",
    "links",
    "accessible",
    "llms_txt",
    "search_index",
]  # in _ext
exclude_patterns = ["_*", "**/__pycache__"]
suppress_warnings = ["misc.highlighting_failure"]  # examples of rules on broken files

myst_enable_extensions = ["colon_fence", "deflist", "fieldlist", "attrs_block"]
myst_heading_anchors = 4

default_role = "literal"
autodoc_mock_imports = ["torch", "transformers", "trl", "peft", "accelerate", "datasets"]
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False

html_theme = "furo"
html_title = f"truetune {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}
copybutton_exclude = ".linenos, .gp, .go"
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "a11y-high-contrast-dark"
