"""SVG that a page can embed: colored by classes, without styles, scripts or unused ids.

Matplotlib writes colors into style attributes, which a strict content-security policy forbids and a
dark page cannot change. This module turns them into attributes and classes.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from io import BytesIO

from trajectory.report.canvas import INK, PALETTE, Picture, style

PNG_DPI = 160
SVG = "http://www.w3.org/2000/svg"
XLINK = "{http://www.w3.org/1999/xlink}href"
FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"

_NAMES = {ink.light: ink.name for ink in PALETTE}
_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_DOT = re.compile(r"M (\S+ \S+) +L \1 *(?=M|$)")
"""A stroke to its own beginning, of which its round ends show."""
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_DROPPED = {"font-family", "font", "stroke-linejoin"}


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture as SVG, for the page and for a file."""

    name: str
    inline: str
    """An ``<svg>`` element for a page whose style sheet includes :func:`rules`."""
    standalone: str
    """A complete SVG file, which follows the reader's preference for light or dark."""


def draw(picture: Picture) -> Drawing:
    """Return the picture, once for a page and once for a file."""
    root = _tree(picture)
    inline = ET.tostring(root, encoding="unicode")
    return Drawing(picture.name, inline, _standalone(root))


def _standalone(root: ET.Element) -> str:
    dark = f"@media (prefers-color-scheme:dark){{:root{{{variables('dark')}}}}}"
    css = f":root{{{variables('light')}}}{dark}"
    sheet = ET.Element(f"{{{SVG}}}style")
    sheet.text = css + rules()
    _, _, width, height = root.attrib["viewBox"].split()
    paper = ET.Element(f"{{{SVG}}}rect", {"width": width, "height": height, "class": "f-paper"})
    for link in root.iter(f"{{{SVG}}}a"):
        link.attrib.pop("href", None)  # the table that it links to is in the page
    root.insert(0, sheet)
    root.insert(1, paper)
    root.set("width", width)
    root.set("height", height)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def variables(light: str) -> str:
    """Return the palette as CSS custom properties, in the ``light`` or the ``dark`` values."""
    return "".join(f"--{ink.name}:{getattr(ink, light)};" for ink in PALETTE)


def rules() -> str:
    """Return the CSS rules of figures: ``f-`` classes fill, ``s-`` classes stroke. Lines drawn over
    a link let clicks through."""
    colours = "".join(
        f".f-{ink.name}{{fill:var(--{ink.name})}}.s-{ink.name}{{stroke:var(--{ink.name})}}"
        for ink in PALETTE
    )
    pointed = "svg{pointer-events:none}svg a,svg text{pointer-events:auto}"
    return f"{colours}{pointed}svg text{{font-family:{FONTS}}}"


def _tree(picture: Picture) -> ET.Element:
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415 (slow to load)

    ET.register_namespace("", SVG)
    buffer = BytesIO()
    # savefig would draw twice, first for a layout, which a picture already has.
    FigureCanvasSVG(picture.figure).print_svg(  # type: ignore[no-untyped-call]
        buffer, metadata={"Date": None}
    )
    root = ET.fromstring(buffer.getvalue())
    _drop(root, {f"{{{SVG}}}metadata", f"{{{SVG}}}style"})
    _drop_backdrop(root)
    referenced = _references(root)
    for element in root.iter():
        _settle_id(element, referenced, picture.name)
        _settle_style(element)
        for name in ("d", "points", "transform"):
            if name in element.attrib:
                text = _NUMBER.sub(_rounded, element.attrib[name]).replace("\n", "")
                element.set(name, _DOT.sub(r"M\1h0", text))
        for name in ("x", "y"):
            if name in element.attrib:
                element.set(name, _NUMBER.sub(_rounded, element.attrib[name]))
        if element.text is not None and not element.text.strip():
            element.text = None
        element.tail = None
    _title_links(root, picture.titles)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.set("role", "img")
    root.set("aria-label", picture.alt)
    return root


def _drop(root: ET.Element, tags: set[str]) -> None:
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in tags:
                parent.remove(child)


def _drop_backdrop(root: ET.Element) -> None:
    """Remove the background rectangle, because the page provides the background."""
    figure = root.find(f"{{{SVG}}}g")
    patch = figure.find(f"{{{SVG}}}g[@id='patch_1']") if figure is not None else None
    if figure is not None and patch is not None:
        figure.remove(patch)


def _references(root: ET.Element) -> set[str]:
    found: set[str] = set()
    for element in root.iter():
        for name, value in element.attrib.items():
            if name == XLINK and element.tag == f"{{{SVG}}}use":
                found.add(value.removeprefix("#"))
            found.update(_REFERENCE.findall(value))
    return found


def _settle_id(element: ET.Element, referenced: set[str], prefix: str) -> None:
    """Remove ids that nothing refers to, and prefix the others with the figure's name, because ids
    must be unique within a page."""
    own = element.attrib.pop("id", None)
    if own in referenced:
        element.set("id", f"{prefix}-{own}")
    target = element.attrib.pop(XLINK, None)
    if target is not None and element.tag == f"{{{SVG}}}use":
        element.set("href", f"#{prefix}-{target.removeprefix('#')}")
    elif target is not None:
        element.set("href", target)
    for name, value in element.attrib.items():
        if "url(#" in value:
            element.set(name, _REFERENCE.sub(rf"url(#{prefix}-\1)", value))


def _settle_style(element: ET.Element) -> None:
    """Turn style declarations into attributes, and the palette's colors into classes."""
    classes = []
    declarations = dict(_declarations(element.attrib.pop("style", "")))
    for name in ("fill", "stroke"):
        colour = declarations.get(name, element.attrib.get(name, ""))
        if colour in _NAMES:
            classes.append(f"{name[0]}-{_NAMES[colour]}")
            declarations.pop(name, None)
            element.attrib.pop(name, None)
    for name, value in declarations.items():
        if name not in _DROPPED:
            element.set(name, value)
    if element.tag == f"{{{SVG}}}text" and not any(c.startswith("f-") for c in classes):
        classes.append(f"f-{INK.name}")
    if classes:
        element.set("class", " ".join(classes))


def _declarations(style: str) -> Iterable[tuple[str, str]]:
    for part in style.split(";"):
        name, colon, value = part.partition(":")
        if name.strip() == "font" and colon:
            yield from _font(value.strip())
        elif colon:
            yield name.strip(), value.strip()


def _font(shorthand: str) -> Iterable[tuple[str, str]]:
    """Yield the size and weight of a shorthand such as ``font: bold 9px 'DejaVu Sans'``."""
    for word in shorthand.split("'", 1)[0].split():
        if word.endswith("px"):
            yield "font-size", word
        elif word == "bold" or word.isdigit():
            yield "font-weight", word


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def _title_links(root: ET.Element, titles: Mapping[str, str]) -> None:
    """Add to each link to a row a title that describes the row.

    Links stay out of the tab order, and open in the same page; Matplotlib's would open another.
    """
    for link in root.iter(f"{{{SVG}}}a"):
        link.set("tabindex", "-1")
        link.attrib.pop("target", None)
        if (title := titles.get(link.get("href", ""))) is not None:
            element = ET.Element(f"{{{SVG}}}title")
            element.text = title
            link.insert(0, element)


def image_files(draw_picture: Callable[[], Picture]) -> dict[str, bytes]:
    """Return a picture's files by name: an SVG for any page, and a PNG."""
    with style():
        picture = draw_picture()
        drawing = draw(picture)
        return {
            f"{picture.name}.svg": drawing.standalone.encode(),
            f"{picture.name}.png": png(picture, PNG_DPI),
        }


def png(picture: Picture, dpi: int) -> bytes:
    """Return the picture as a PNG image in the light palette."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 (slow to load)

    buffer = BytesIO()
    picture.figure.dpi = dpi
    FigureCanvasAgg(picture.figure).print_png(  # type: ignore[no-untyped-call]
        buffer, metadata={"Software": None}
    )
    return buffer.getvalue()
