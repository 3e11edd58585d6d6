"""An SVG as a page can take it in: coloured by classes, without styles, scripts or loose ids.

Matplotlib writes colours into style attributes, which a strict content-security policy forbids and
a dark page cannot change. Here they become attributes and classes.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import BytesIO

from trajectory.report.drawing.canvas import INK, PALETTE, Ink, Picture

SVG = "http://www.w3.org/2000/svg"
XLINK = "{http://www.w3.org/1999/xlink}href"
FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"

_NAMES = {ink.light: ink.name for ink in PALETTE}
_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_DROPPED = {"font-family", "font", "stroke-linejoin"}


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture as SVG, for its two places."""

    name: str
    inline: str
    """An ``<svg>`` element for a page that holds :func:`rules` in its style sheet."""
    standalone: str
    """A file of its own, which follows the reader's preference for light or dark."""


def draw(picture: Picture) -> Drawing:
    """The picture, once for a page and once for a file."""
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
        link.attrib.pop("href", None)  # the table it leads to is in the page
    root.insert(0, sheet)
    root.insert(1, paper)
    root.set("width", width)
    root.set("height", height)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def variables(light: str) -> str:
    """The palette as CSS custom properties, in the ``light`` or the ``dark`` values."""
    return "".join(f"--{ink.name}:{getattr(ink, light)};" for ink in PALETTE)


def rules() -> str:
    """The classes of figures: ``f-`` fills, ``s-`` strokes. Lines that lie over a link let a click
    through."""
    colours = "".join(_rule(ink) for ink in PALETTE)
    pointed = "svg{pointer-events:none}svg a,svg text{pointer-events:auto}"
    return f"{colours}{pointed}svg text{{font-family:{FONTS}}}"


def _rule(ink: Ink) -> str:
    return f".f-{ink.name}{{fill:var(--{ink.name})}}.s-{ink.name}{{stroke:var(--{ink.name})}}"


def _tree(picture: Picture) -> ET.Element:
    ET.register_namespace("", SVG)
    buffer = BytesIO()
    picture.figure.savefig(buffer, format="svg", metadata={"Date": None})
    root = ET.fromstring(buffer.getvalue())
    _drop(root, {f"{{{SVG}}}metadata", f"{{{SVG}}}style"})
    _drop_backdrop(root)
    referenced = _references(root)
    for element in root.iter():
        _settle_id(element, referenced, picture.name)
        _settle_style(element)
        for name in ("d", "points", "transform"):
            if name in element.attrib:
                element.set(name, _NUMBER.sub(_rounded, element.attrib[name]).replace("\n", ""))
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
    """The page is the paper."""
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
    """Ids are of the page they come to: those nobody refers to go, the rest get the figure's."""
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
    """Declarations become attributes, and the palette's colours classes."""
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
    """``font: bold 9px 'DejaVu Sans'``: what of it is not the family."""
    for word in shorthand.split("'", 1)[0].split():
        if word.endswith("px"):
            yield "font-size", word
        elif word == "bold" or word.isdigit():
            yield "font-weight", word


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def _title_links(root: ET.Element, titles: Mapping[str, str]) -> None:
    """Links to rows say over themselves what they lead to, stay out of the tab order, and lead
    there in the page they are in; Matplotlib would open another."""
    for link in root.iter(f"{{{SVG}}}a"):
        link.set("tabindex", "-1")
        link.attrib.pop("target", None)
        if (title := titles.get(link.get("href", ""))) is not None:
            element = ET.Element(f"{{{SVG}}}title")
            element.text = title
            link.insert(0, element)


def png(picture: Picture, dpi: int) -> bytes:
    """The picture as an image in the light palette, on paper."""
    buffer = BytesIO()
    picture.figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()
