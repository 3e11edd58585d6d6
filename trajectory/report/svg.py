"""SVG that a page can embed: in the page's colors, without styles, scripts or foreign ids.

Matplotlib writes colors into style attributes, which a strict content-security policy forbids and a
dark page cannot change. This module turns them into attributes that name CSS variables.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from html import escape, unescape
from io import BytesIO

from trajectory.report.canvas import PALETTE, Picture, style

PNG_DPI = 160
FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"

_VARIABLES = {ink.light: f"var(--{ink.name})" for ink in PALETTE}
_COLOR = re.compile("|".join(_VARIABLES))
_TAG = re.compile(r"<[^>]*>")
"""A tag; Matplotlib escapes the character in texts and attributes."""
_BETWEEN_TAGS = re.compile(r">\s+<")
_STYLE_SHEET = re.compile(r"<defs>\s*<style.*?</defs>", re.DOTALL)
_STYLE = re.compile(r'style="([^"]*)"')
_FONT = re.compile(r"\bfont: (?:(\w+) )?([\d.]+px)[^;]*")
"""The shorthand of Matplotlib before 3.11: ``font: 700 9px 'DejaVu Sans'``."""
_LINK = re.compile(r'<a [^>]*href="([^"]*)"[^>]*>')
_DIGITS = re.compile(r"(\.\d\d)\d+")
"""Digits of less than a hundredth of a point."""
_DOT = re.compile(r'M (\S+ \S+) +L \1 *(?=[M"])')
"""A stroke to its own beginning, of which its round ends show."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture as SVG, for the page and for a file."""

    name: str
    inline: str
    """An ``<svg>`` element for a page whose style sheet includes :func:`rules`."""
    standalone: str
    """A complete SVG file, which follows the reader's preference for light or dark."""
    png: bytes
    """The same in the light palette, as an image."""

    @property
    def files(self) -> dict[str, bytes]:
        """The SVG and the PNG, by name."""
        return {f"{self.name}.svg": self.standalone.encode(), f"{self.name}.png": self.png}


def draw(draw_picture: Callable[[], Picture]) -> Drawing:
    """Draw a picture in the style of all figures, for a page and for files."""
    image = BytesIO()
    with style():
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 (slow to load)

        picture = draw_picture()
        content = _content(picture)
        picture.figure.dpi = PNG_DPI
        FigureCanvasAgg(picture.figure).print_png(  # type: ignore[no-untyped-call]
            image, metadata={"Software": None}
        )
    width, height = (72 * inches for inches in picture.figure.get_size_inches())
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="{escape(picture.alt)}"'
    )
    dark = f"@media (prefers-color-scheme:dark){{:root{{{variables('dark')}}}}}"
    standalone = (
        f'<?xml version="1.0" encoding="utf-8"?>\n{head} width="{width:g}" height="{height:g}">'
        f"<style>:root{{{variables('light')}}}{dark}{rules()}</style>"
        f'<rect width="{width:g}" height="{height:g}" fill="var(--paper)"/>'
        # The table that its links lead to is in the page.
        f"{_LINK.sub('<a>', content)}</svg>\n"
    )
    return Drawing(picture.name, f"{head}>{content}</svg>", standalone, image.getvalue())


def variables(light: str) -> str:
    """Return the palette as CSS custom properties, in the ``light`` or the ``dark`` values."""
    return "".join(f"--{ink.name}:{getattr(ink, light)};" for ink in PALETTE)


def rules() -> str:
    """Return the CSS rules of figures. Lines drawn over a link let clicks through."""
    pointed = "svg{pointer-events:none}svg a,svg text{pointer-events:auto}"
    return f"{pointed}svg text{{font-family:{FONTS}}}"


def _content(picture: Picture) -> str:
    """Return what is between the tags of the root element."""
    import matplotlib as mpl  # noqa: PLC0415 (slow to load)
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415

    buffer = BytesIO()
    # savefig would draw twice, first for a layout, which a picture already has.
    canvas = FigureCanvasSVG(picture.figure)
    picture.figure.patch.set_visible(False)  # the page provides the background
    # Ids are hashes, which differ from those of other pictures in the page.
    with mpl.rc_context({"svg.hashsalt": picture.name}):
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        canvas.print_svg(buffer, metadata=nothing)  # type: ignore[no-untyped-call]
    picture.figure.patch.set_visible(True)
    _, _, text = buffer.getvalue().decode().partition("<svg")
    _, _, text = text.rpartition("</svg>")[0].partition(">")
    text = _BETWEEN_TAGS.sub("><", _STYLE_SHEET.sub("", text)).strip()
    return _TAG.sub(lambda tag: _embedded(tag[0], picture), text)


def _embedded(tag: str, picture: Picture) -> str:
    """Return a tag as the page has it: in the page's colors, a link with the title of its row."""
    if link := _LINK.fullmatch(tag):
        # Links stay out of the tab order, and open in the same page.
        title = escape(picture.titles[link[1]])
        return f'<a href="{link[1]}" tabindex="-1"><title>{title}</title>'
    tag = _DIGITS.sub(r"\1", tag.replace("\n", "").replace("xlink:href", "href"))
    tag = re.sub(r'^<g id="[^"]*"', "<g", tag)  # the same in every picture
    tag = _STYLE.sub(lambda found: _attributes(unescape(found[1])), tag)
    return _DOT.sub(r"M\1h0", _COLOR.sub(lambda color: _VARIABLES[color[0]], tag))


def _attributes(css: str) -> str:
    """Return a style's declarations as attributes, which the page's policy allows."""
    css = _FONT.sub(lambda font: f"font-weight: {font[1] or 400}; font-size: {font[2]}", css)
    parts = (part.strip().partition(": ") for part in css.split(";"))
    kept = ((name, value) for name, _, value in parts if name and name != "font-family")
    return " ".join(f'{name}="{escape(value)}"' for name, value in kept)
