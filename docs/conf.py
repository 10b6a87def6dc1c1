"""How the site is built: ``make docs``."""

import re
from importlib.metadata import version as installed
from inspect import isroutine

project, author, copyright = "largen", "the authors of largen", "the authors of largen"
release = version = installed("largen")

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",
    "sphinx_design",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "jupyter_execute"]
html_theme = "pydata_sphinx_theme"
html_title = "largen"
html_static_path = ["_static"]
html_css_files = ["site.css"]
# Pages without pages below them need no navigation beside them.
ALONE = ("start", "which_limit", "covered", "sharp_edges", "equations", "glossary", "design")
html_sidebars = {name: [] for name in (*ALONE, "gallery/index", "evidence/index")}
html_theme_options = {
    "show_prev_next": True,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
}

# Pages are executed once, and again only where their code has changed.
nb_execution_mode = "cache"
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_output_stderr = "remove"  # progress of cells that take long on the machine that builds
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

templates_path = ["_templates"]
autosummary_generate = True
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
# Single backquotes of docstrings are code where they name nothing.
default_role = "code"

LITERAL = re.compile(r"(``.*?``)")


def escape(app, what, name, obj, options, lines):
    """Keep stars of shapes, ``*space``, and bars of absolute values from being read as markup."""
    example = False
    for n, line in enumerate(lines):
        example = line.strip().startswith(">>>") or (example and bool(line.strip()))
        if not example:
            parts = LITERAL.split(line)
            parts[::2] = [re.sub(r"(?<![*\\])\*(?=\w+[,)])|\|", r"\\\g<0>", p) for p in parts[::2]]
            lines[n] = "".join(parts)


def of_others(app, what, name, obj, skip, options):
    """Leave out members of classes that are no methods or properties of largen's own."""
    function = getattr(obj, "fget", None) or getattr(obj, "func", None) or obj
    home = getattr(function, "__module__", None) or ""
    return skip or not (isroutine(function) and home.startswith("largen"))


def setup(app):
    """Connect what this file adds."""
    app.connect("autodoc-skip-member", of_others)
    app.connect("autodoc-process-docstring", escape, priority=400)
