"""A matplotlib figure as an element of the page. Knows matplotlib's SVG, nothing of what is drawn.

Colours are stand-ins that the page's style sheet gives a meaning, so that one drawing is readable in light and in dark;
text is in the page's font; ids are the drawing's own, because a page holds many. The same figure gives the same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from epymarl_fairtest.report.chart import LARGEST

# Colours that nothing else has.
INK, QUIET, GRID, ACCENT, PAPER = "#010203", "#040506", "#070809", "#0a0b0c", "#0d0e0f"
VARIABLES = {
    INK: "var(--ink)",
    QUIET: "var(--quiet)",
    GRID: "var(--grid)",
    ACCENT: "var(--accent)",
    PAPER: "var(--paper)",
}
OURS: dict[str, Any] = {
    "svg.fonttype": "none",  # text stays text, in the page's font
    "svg.hashsalt": "fairtest",
    "font.size": 9.5,
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "text.color": INK,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}
XLINK = "http://www.w3.org/1999/xlink"
HREF, URL = "xlink:href", "url(#"  # an element refers to another one by `xlink:href="#id"` or `url(#id)`


def element_of(figure: Figure, name: str, description: str) -> str:
    """`name` begins the ids of the drawing, `description` is what is read aloud instead of it."""
    drawing = _parsed(figure)
    targets = {target for part in drawing.iter() for target in _targets(part)}
    for part in drawing.iter():
        part.attrib = dict(_rewritten(part, name, targets))
    box = drawing.attrib["viewBox"]
    attributes = {
        "class": "drawn",
        "style": f"max-width:{LARGEST * float(box.split()[2]):.0f}px",
        "role": "img",
        "aria-label": description,
        "viewBox": box,
        "xmlns:xlink": XLINK,
    }
    root = Element("svg", attributes)
    root.extend(drawing)
    return ElementTree.tostring(root, encoding="unicode")


def _parsed(figure: Figure) -> Element:
    """matplotlib's drawing without comments, metadata, and a style sheet that would style the page.

    HTML knows SVG without namespaces: elements have their plain names, and a reference is `xlink:href`.
    """
    for patch in (figure.patch, *(axes.patch for axes in figure.axes)):
        patch.set(facecolor="none", edgecolor="none")
    file = io.BytesIO()
    # Not `savefig`: it would draw everything twice, the first time only to lay it out.
    canvas: Any = FigureCanvasSVG(figure)
    canvas.print_svg(file, metadata={"Date": None, "Creator": None})
    drawing = ElementTree.fromstring(file.getvalue())
    for part in drawing.iter():
        part.tag = part.tag.rpartition("}")[2]
        part.attrib = {key.replace(f"{{{XLINK}}}", "xlink:"): value for key, value in part.attrib.items()}
    for part in drawing.findall("metadata") + drawing.findall("defs[style]"):
        drawing.remove(part)
    return drawing


def _targets(part: Element) -> Iterator[str]:
    """Ids that the element refers to."""
    for key, value in part.attrib.items():
        if key == HREF:
            yield value.removeprefix("#")
        for text in (declared for _, declared in _declarations(value)) if key == "style" else (value,):
            if text.startswith(URL):
                yield text[len(URL) : -1]


def _rewritten(part: Element, name: str, targets: set[str]) -> Iterator[tuple[str, str]]:
    """The element's attributes as the page needs them; ids that nothing refers to are left out."""
    for key, value in part.attrib.items():
        if key == "style":
            pairs = [pair for declaration in _declarations(value) for pair in _in_the_pages_font(*declaration)]
            yield key, "; ".join(f"{property_}: {_value(text, name)}" for property_, text in pairs)
        elif key == HREF:
            yield key, f"#{name}-{value.removeprefix('#')}"
        elif key != "id":
            yield key, _value(value, name)
        elif value in targets:
            yield key, f"{name}-{value}"


def _value(value: str, name: str) -> str:
    """In the page's colours, and referring to ids of this drawing."""
    return value.replace(URL, f"{URL}{name}-", 1) if value.startswith(URL) else VARIABLES.get(value, value)


def _declarations(style: str) -> Iterator[tuple[str, str]]:
    """Property and value."""
    for declaration in filter(str.strip, style.split(";")):
        property_, _, value = declaration.partition(":")
        yield property_.strip(), value.strip()


def _in_the_pages_font(property_: str, value: str) -> list[tuple[str, str]]:
    if property_ == "font":  # older versions of matplotlib write "bold 9.5px 'DejaVu Sans', ..."
        words = value.split()
        weight = [("font-weight", "bold")] if "bold" in words else []
        return [*weight, ("font-size", next(word for word in words if word.endswith("px")))]
    return [(property_, "inherit" if property_ == "font-family" else value)]
