"""HTML from the jinja2 templates beside this file; every value is escaped."""

import re
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape


def render(template: str, **values: Any) -> str:
    """Return the template filled with `values`; an undefined name is an error."""
    return ENVIRONMENT.get_template(template).render(**values)


def render_block(block: Any) -> Markup:
    """Return a part of a page by the macro of blocks.html.j2 that has the name of its class."""
    macros = ENVIRONMENT.get_template("blocks.html.j2").module
    return Markup(getattr(macros, type(block).__name__.lower())(block))


def code(text: str) -> Markup:
    """Return `text` as HTML in which what stands between backticks is code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


ENVIRONMENT = Environment(
    loader=PackageLoader("posenc.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.filters |= {"code": code, "path": quote, "html": render_block}
