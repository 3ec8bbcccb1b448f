"""Make the SVG that matplotlib writes small: short paths and ids, styles said once, nothing
invisible.

Coordinates are kept to a tenth of a point, markers to a hundredth. Text stays text, so that a
reader can search it and a page can choose its colour.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

FONTS = "DejaVu Sans, Verdana, sans-serif"
"""Fonts with the widths that the layout was made for, then any."""
GRID = "#ececec"
"""The colour of grid lines: those of one kind become one path."""
LONG = 120
"""Characters of a path from which on a second one of the same shape refers to the first."""

_SVG = "{http://www.w3.org/2000/svg}"
_XLINK = "{http://www.w3.org/1999/xlink}"
_TOKEN = re.compile(r"[A-Za-z]|-?[\d.]+(?:e-?\d+)?")
_TENTH = 10
_HUNDREDTH = 100


def compact(svg: str, name: str, attributes: Mapping[str, str]) -> str:
    """Return a figure as one small ``<svg>`` element without an XML declaration.

    A group with the id ``method-2 line|accuracy 0.8`` gets the classes ``method-2 line`` and the
    title after the bar.

    Parameters
    ----------
    svg: as matplotlib writes it, with ``svg.fonttype`` none.
    name: goes before every id.
    attributes: of the element.
    """
    old = ElementTree.fromstring(re.sub(r"<!DOCTYPE[^>]*>", "", svg))
    root = Element("svg", dict(attributes) | {"xmlns": "http://www.w3.org/2000/svg"})
    root.attrib |= {key: old.get(key, "") for key in ("width", "height", "viewBox")}
    root.attrib |= {"stroke-linejoin": "round", "font-family": FONTS}
    root.extend(_visible(old))
    _rename(root, name)
    _share_shapes(root, name)
    return ElementTree.tostring(root, encoding="unicode")


def _visible(node: Element, defined: bool = False) -> Iterator[Element]:
    """Yield the children of a node that show something, written shortly; groups without a meaning
    give way to what is in them."""
    for child in node:
        tag = child.tag.removeprefix(_SVG)
        if tag in ("metadata", "style"):
            continue
        new = Element(tag, _attributes(child, tag, defined or tag == "clipPath"))
        new.text = _spaced(child.text) if tag == "text" else None
        new.extend(_visible(child, defined or tag in ("defs", "clipPath")))
        if tag in ("g", "defs") and not len(new) and not new.get("class"):
            continue
        if tag == "path" and not defined and new.get("style") == "fill:none":
            continue
        if tag == "g":
            _hoist(new)
            _join_paths(new)
        if tag == "g" and not set(new.attrib) - {"id"}:
            yield from new
        else:
            yield new


def _spaced(text: str | None) -> str:
    """Return a line of text whose runs of blanks SVG would make one."""
    return re.sub(" {2,}", "\u2003", text or "")


def _attributes(node: Element, tag: str, defined: bool) -> dict[str, str]:
    """Return the attributes that mean something, numbers rounded; the id of a method as its class,
    with its title."""
    attributes = {key.removeprefix(_XLINK): value for key, value in node.attrib.items()}
    for key in ("x", "y", "width", "height"):
        if key in attributes and tag != "image":
            attributes[key] = _number(round(float(attributes[key]) * _TENTH), _TENTH)
    if "d" in attributes:
        attributes["d"] = _path(attributes["d"], _HUNDREDTH if defined else _TENTH)
    if "style" in attributes:
        attributes["style"] = _style(attributes["style"])
    if attributes.get("transform", "").startswith("rotate(-0 "):
        del attributes["transform"]
    elif "transform" in attributes and tag == "text":
        attributes["transform"] = re.sub(
            r"-?\d+\.\d+", lambda match: f"{float(match[0]):.1f}", attributes["transform"]
        )
    marked, _, title = attributes.get("id", "").partition("|")
    if tag == "g" and marked.startswith("method-"):
        return {"class": marked} | ({"said": title} if title else {})
    return attributes


def _style(text: str) -> str:
    """Return a style without blanks, default values and the font, which the figure has."""
    pairs = [
        (key.strip(), value.strip())
        for key, _, value in (declaration.partition(":") for declaration in text.split(";"))
        if value
    ]
    dropped = {
        ("stroke-linecap", "butt"),
        ("stroke-linejoin", "round"),
        ("stroke-width", "1"),
        ("text-anchor", "start"),
    }
    declarations = [
        (key, value) for key, value in pairs if (key, value) not in dropped and key != "font-family"
    ]
    return ";".join(f"{key}:{value}" for key, value in declarations)


def _hoist(group: Element) -> None:
    """Say the style of a group's marks and of its texts once, where several have the same."""
    for tag in ("use", "text"):
        alike: dict[str, list[Element]] = {}
        for child in group:
            if child.tag == tag:
                alike.setdefault(child.get("style", ""), []).append(child)
        for style, children in alike.items():
            if style and len(children) > 2:
                for child in children:
                    group.remove(child)
                    del child.attrib["style"]
                own = Element("g", {"style": style})
                own.extend(children)
                group.append(own)


def _join_paths(group: Element) -> None:
    """Make one path of neighbours that differ in nothing but their path, and of all grid lines of a
    group."""
    first: dict[tuple[str | None, str | None], Element] = {}
    before: Element | None = None
    for child in list(group):
        style = child.get("style", "")
        clip = child.get("clip-path")
        there = first.get((style, clip)) if f"stroke:{GRID}" in style else before
        if (
            child.tag == "path"
            and there is not None
            and (there.get("style"), there.get("clip-path")) == (style, clip)
        ):
            there.set("d", f"{there.get('d')}{child.get('d')}")
            group.remove(child)
        else:
            first[style, clip] = child
            if child.tag == "path" and "opacity" not in style and child.get("id") is None:
                before = child
            else:
                before = None


def _path(text: str, unit: int) -> str:
    """Return a path in relative coordinates, rounded to 1 / ``unit`` from its start, without points
    that change nothing."""
    out: list[str] = []
    tokens = _TOKEN.findall(text)
    at = 0
    begun = (0.0, 0.0)
    here = (0, 0)
    while at < len(tokens):
        command = tokens[at]
        count = {"M": 2, "L": 2, "Q": 4, "C": 6}.get(command, 0)
        numbers = [float(token) for token in tokens[at + 1 : at + 1 + count]]
        at += 1 + count
        if command == "M":
            begun = (numbers[0], numbers[1])
            here = (0, 0)
            out.append("M" + _numbers([round(number * unit) for number in begun], unit))
        elif count:
            ends = [round((number - begun[i % 2]) * unit) for i, number in enumerate(numbers)]
            moved = [end - here[i % 2] for i, end in enumerate(ends)]
            here = (ends[-2], ends[-1])
            _append(out, command, moved, unit)
        else:
            out.append("z")
    # with round ends a line without length is a dot
    return re.sub(r"(M[-\d. ]+)(?=M|$)", r"\1h0", "".join(out))


def _append(out: list[str], command: str, moved: list[int], unit: int) -> None:
    """Append a relative line or curve; a line that goes on in the direction of the one before
    lengthens it."""
    if command != "L":
        out.append(command.lower() + _numbers(moved, unit))
    elif any(moved):
        kind, length = "", 0
        if not moved[1]:
            kind, length = "h", moved[0]
        elif not moved[0]:
            kind, length = "v", moved[1]
        before = round(float(out[-1][1:]) * unit) if out[-1][0] == kind else 0
        if kind and before * length > 0:
            out[-1] = kind + _number(before + length, unit)
        elif kind:
            out.append(kind + _number(length, unit))
        else:
            out.append("l" + _numbers(moved, unit))


def _number(value: int, unit: int) -> str:
    text = f"{value / unit:.{len(str(unit)) - 1}f}".rstrip("0").rstrip(".")
    return re.sub(r"^(-?)0\.", r"\1.", text) if text not in ("-0", "") else "0"


def _numbers(values: list[int], unit: int) -> str:
    texts = [_number(value, unit) for value in values]
    return "".join(
        text if not i or text.startswith("-") else f" {text}" for i, text in enumerate(texts)
    )


def _rename(root: Element, name: str) -> None:
    """Keep the ids that are referred to, as ``NAME-1``, ``NAME-2``, ...; give the groups of methods
    their titles."""
    text = ElementTree.tostring(root, encoding="unicode")
    used = dict.fromkeys(re.findall(r'(?:href="#|url\(#)([^")]+)', text))
    new = {before: f"{name}-{number}" for number, before in enumerate(used, 1)}
    for node in root.iter():
        if node.get("id") in new:
            node.set("id", new[node.attrib["id"]])
        else:
            node.attrib.pop("id", None)
        if "clip-path" in node.attrib:
            node.set("clip-path", f"url(#{new[node.attrib['clip-path'][5:-1]]})")
        if node.get("href", "").startswith("#"):
            node.set("href", f"#{new[node.attrib['href'][1:]]}")
        words = node.attrib.pop("said", None)
        if words is not None:
            title = Element("title")
            title.text = words
            node.insert(0, title)


def _share_shapes(root: Element, name: str) -> None:
    """Let long paths of the same shape and style refer to the first of them."""
    first: dict[tuple[str, str], tuple[Element, float, float]] = {}
    for node in [
        path
        for path in root.iter("path")
        if len(path.get("d", "")) > LONG and path.get("id") is None
    ]:
        start = re.match(r"M(-?[\d.]+) ?(-?[\d.]+)", node.attrib["d"])
        if start is None:
            continue
        x = float(start[1])
        y = float(start[2])
        key = (node.attrib["d"][start.end() :], node.get("style", ""))
        if key not in first:
            first[key] = (node, x, y)
            continue
        original, x0, y0 = first[key]
        if original.get("id") is None:
            original.set(
                "id",
                f"{name}-s{len([shape for shape, *_ in first.values() if shape.get('id')]) + 1}",
            )
        # its clip moves with it
        moved = {key: f"{value:.1f}" for key, value in (("x", x - x0), ("y", y - y0))}
        node.tag = "use"
        node.attrib = {"href": f"#{original.attrib['id']}"} | moved
