"""Style of figures and their conversion to SVG: one palette, no pyplot, reproducible bytes, ids
that are unique in a page."""

from __future__ import annotations

import io
import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Floats
from motley.results.blocks import Picture
from motley_report.svg import compact

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5A5A5A")
"""Okabe and Ito's palette without its yellow (unreadable on white): told apart with every common
colour blindness."""
CLASS_COLOURS = (
    "#332288",
    "#88CCEE",
    "#44AA99",
    "#117733",
    "#999933",
    "#DDCC77",
    "#CC6677",
    "#882255",
    "#AA4499",
    "#BBBBBB",
)
"""Paul Tol's *muted*, for up to ten classes of data."""
_ON_BLACK = ("#4BA3DC", "#F0803C", "#2DC399", "#DE9CC0", "#E9B03A", "#7CC7F0", "#A6A6AC")
_CLASSES_ON_BLACK = (
    "#8478D6",
    "#88CCEE",
    "#44AA99",
    "#3FA866",
    "#A5A547",
    "#DDCC77",
    "#D98490",
    "#C4588F",
    "#BC68B0",
    "#BBBBBB",
)
DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
NARROW = 5.0
"""Inches of a figure that stands beside another; wider ones have the page for themselves."""
COLUMN = 3.4
PAGE = 7.0
"""Inches of a figure in print: across a column of a page with two, and across the page."""
SMALLER = 0.8
"""Letters and lines in print, as a share of those on the screen."""
ONE_BY_ONE = 2000
"""A picture draws up to so many clients one by one, and more as groups, so that its size has a
limit."""
CLIENT_GROUPS = 500
"""Groups of neighbouring clients that are drawn instead, each by its mean."""
LINES = 3
"""Lines of a name at most."""
INK = "#222222"
FAINT = "#D9D9D9"
PALETTE = {
    **{
        f"m{i}": (light, dark)
        for i, (light, dark) in enumerate(zip(COLOURS, _ON_BLACK, strict=True))
    },
    **{
        f"k{i}": (light, dark)
        for i, (light, dark) in enumerate(zip(CLASS_COLOURS, _CLASSES_ON_BLACK, strict=True))
    },
    "letters": (INK, "#E8E8EA"),
    "numbers": ("#555555", "#B4B4BA"),
    "axis": ("#888888", "#85858C"),
    "grid": ("#ECECEC", "#2E2E33"),
    "faint": (FAINT, "#4A4A50"),
    "rule": ("#333333", "#C9C9CE"),
    "strip": ("#777777", "#98989E"),
    "good": ("#00694D", "#43C99B"),
    "bad": ("#A84300", "#F0955A"),
}
"""CSS variable -> a colour of the figures as it is, and what a page may make it on a dark
ground."""
STYLE: Any = {
    "text.parse_math": False,
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
    "svg.hashsalt": "motley",
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#888888",
    "axes.linewidth": 0.8,
    "axes.titlesize": 10.0,
    "axes.titlelocation": "left",
    "axes.titlepad": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#ECECEC",
    "grid.linewidth": 0.8,
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
}
_NO_DATES: dict[str, dict[str, None]] = {
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def colour(method: int) -> str:
    """Return the colour of the i-th method, the same in every figure of a report."""
    return COLOURS[method % len(COLOURS)]


def dash(method: int) -> Any:
    """Return the line style of the i-th method: colours repeat after seven, dashes do not."""
    return DASHES[method // len(COLOURS) % len(DASHES)]


def dot(method: int) -> str:
    """Return the marker of the i-th method: circles for the first seven, squares for the next."""
    return "os"[method // len(COLOURS) % 2]


def columns_of(panels: int) -> int:
    """Return the number of columns for a number of panels: at most three, and two by two for
    four."""
    return 2 if panels == 4 else min(3, panels)


def group_edges(clients: int) -> Floats:
    """Return where the groups begin that a picture draws of so many clients in its order, and where
    the last one ends ``[g + 1]``: a client each up to :data:`ONE_BY_ONE`, else
    :data:`CLIENT_GROUPS` groups of equal size (to one client)."""
    groups = clients if clients <= ONE_BY_ONE else CLIENT_GROUPS
    return np.asarray(np.arange(groups + 1) * clients // max(groups, 1), float)


def client_groups(values: Floats) -> Floats:
    """Return the mean of each group of clients that a picture draws ``[g, ...]``; ``values``: one
    row per client, in its order."""
    if len(values) <= ONE_BY_ONE:
        return values
    edges = group_edges(len(values)).astype(np.int64)
    sums = np.add.reduceat(np.asarray(values, float), edges[:-1], axis=0)
    sizes = np.diff(edges).reshape(-1, *(1,) * (values.ndim - 1))
    return np.asarray(sums / sizes, float)


def mean_by_share(rows: Sequence[NDArray[Any]]) -> Floats:
    """Return the mean over rows (seeds) of sorted figures of clients ``[n]``, at equal shares of
    the clients: seeds may differ in how many there are. Empty rows are left out; empty without
    others."""
    filled = [row for row in rows if len(row)]
    places = max(map(len, filled), default=0)
    at = (np.arange(places) + 0.5) / max(places, 1)
    each = [np.interp(at, (np.arange(len(row)) + 0.5) / len(row), row) for row in filled]
    return np.mean(each, axis=0) if each else np.empty(0)


def grouping(clients: int) -> str:
    """Return the words for an axis on which so many clients are drawn as groups; nothing where each
    is drawn."""
    return (
        f" (drawn as {CLIENT_GROUPS} equal parts, each by its mean)" if clients > ONE_BY_ONE else ""
    )


def mark(artist: Any, method: int, text: str = "") -> Any:
    """Tag an artist with its method, so that the page can hide it, and with what it shows, in
    words; return the artist."""
    artist.set_gid(f"method-{method}" + (f"|{text}" if text else ""))
    return artist


def draw_line(
    axes: Axes,
    method: int,
    x: Any,
    y: Any,
    form: str = "",
    style: Mapping[str, Any] = MappingProxyType({}),
    text: str = "",
) -> Any:
    """Draw a line in its method's colour, tagged as :func:`mark` does; return it.

    Parameters
    ----------
    form, style: as the format and the keywords of matplotlib's ``plot``.
    text: what the line shows, in words.
    """
    (artist,) = axes.plot(x, y, *([form] if form else []), **{"color": colour(method), **style})
    return mark(artist, method, text)


def panel_grid(
    figure: Figure, count: int, columns: int, sharex: bool = False, sharey: bool = False
) -> list[Axes]:
    """Return ``count`` panels in rows of ``columns``; places that are left over are empty."""
    rows = -(-count // columns)
    grid = figure.subplots(rows, columns, sharex=sharex, sharey=sharey, squeeze=False)
    panels: list[Axes] = grid.ravel().tolist()
    for axes in panels[count:]:
        axes.set_axis_off()
    return panels[:count]


@contextmanager
def styled() -> Iterator[None]:
    """Apply Motley's style inside the block, independent of the user's matplotlibrc."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure with constrained layout; width and height in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def to_svg(figure: Figure, name: str, description: str) -> Picture:
    """Return the figure as one ``<svg>`` element, coordinates to a hundredth of a point.

    Parameters
    ----------
    name: goes before every id, and names the file where the picture is one.
    description: what a reader who cannot see it should know.
    """
    import matplotlib as mpl

    _mark_lines(figure)
    with mpl.rc_context({"svg.fonttype": "none"}):
        svg = draw(figure, "svg").decode()
    plots = json.dumps(list(_scales(figure)), separators=(",", ":"), ensure_ascii=False)
    about = {"role": "img", "aria-label": description} | (
        {"data-axes": plots} if plots != "[]" else {}
    )
    return Picture(
        name=name,
        about=description,
        svg=compact(svg, name, about),
        wide=figure.get_figwidth() > 1.2 * NARROW,
        figure=figure,
    )


def draw(figure: Figure, kind: str) -> bytes:
    """Return a file of the figure without a date, so that the same figure gives the same bytes.

    Parameters
    ----------
    kind: ``svg`` or ``pdf``.
    """
    from matplotlib.axes import Axes
    from matplotlib.backend_bases import get_registered_canvas_class

    sink = io.BytesIO()
    dpi = figure.dpi
    for patch in (figure.patch, *(axes.patch for axes in figure.findobj(Axes))):
        patch.set(facecolor="none", edgecolor="none")
    canvas = get_registered_canvas_class(kind)(figure)
    # savefig would draw everything once more beforehand, only to lay it out
    getattr(canvas, f"print_{kind}")(sink, metadata=_NO_DATES[kind])
    figure.dpi = dpi  # which printing sets to the points of the page
    return sink.getvalue()


def _mark_lines(figure: Figure) -> None:
    """Tag the curves of methods as lines, along which a page can read values."""
    for line in (line for axes in figure.axes for line in axes.lines):
        marked, bar, text = str(line.get_gid() or "").partition("|")
        if (
            marked.startswith("method-")
            and np.size(line.get_xdata()) > 2
            and line.get_linestyle() != "None"
        ):
            line.set_gid(f"{marked} line{bar}{text}")


def _scales(figure: Figure) -> Iterator[list[float | str]]:
    """Yield for each panel with curves: left, top, width and height in the picture's points; the
    ends of the abscissa and whether it is logarithmic (1 or 0), the same of the ordinate; the names
    of both."""
    wide = 72 * figure.get_figwidth()
    high = 72 * figure.get_figheight()
    for axes in figure.axes:
        if any(" line" in str(line.get_gid()) for line in axes.lines):
            box = axes.get_position()
            place = (wide * box.x0, high * (1 - box.y1), wide * box.width, high * box.height)
            ends = (
                *axes.get_xlim(),
                axes.get_xscale() == "log",
                *axes.get_ylim(),
                axes.get_yscale() == "log",
            )
            names = (
                axes.get_xlabel() or figure.get_supxlabel(),
                axes.get_ylabel() or figure.get_supylabel(),
            )
            yield [*(float(f"{number:.6g}") for number in (*place, *ends)), *names]


def for_print(picture: Picture, kinds: Sequence[str]) -> tuple[str, dict[str, bytes]]:
    """Return the picture's title, which belongs into a caption, and the picture without it as
    vector files, by kind.

    It is :data:`COLUMN` or, where it is wide, :data:`PAGE` inches wide, with smaller letters and
    thinner lines. The letters of a PDF are embedded fonts, those of an SVG outlines. The figure of
    the picture is changed: once is enough.

    Parameters
    ----------
    kinds: of ``pdf`` and ``svg``.
    """
    figure = picture.figure
    with styled():
        title = _taken_title(figure)
        _shrink(figure)
        width, height = figure.get_size_inches()
        figure.set_size_inches(
            *((PAGE, height * PAGE / width) if picture.wide else (COLUMN, height * COLUMN / width))
        )
        return title, {kind: draw(figure, kind) for kind in kinds}


def _taken_title(figure: Figure) -> str:
    """Return the title over a whole figure and remove it; panels keep theirs."""
    title = figure.get_suptitle()
    figure.suptitle("")
    if len(figure.axes) == 1:
        title = title or figure.axes[0].get_title(loc="left")
        figure.axes[0].set_title("")
    return " ".join(title.split())


def _shrink(figure: Figure) -> None:
    """Scale letters, lines and markers for print."""
    from matplotlib.lines import Line2D
    from matplotlib.text import Text

    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        ticks = axis.get_major_ticks()
        if ticks:
            axis.set_tick_params(labelsize=SMALLER * float(ticks[0].label1.get_fontsize()))
    labels = {
        label
        for axes in figure.axes
        for label in (*axes.get_xticklabels(), *axes.get_yticklabels())
    }
    for text in (text for text in figure.findobj(Text) if text not in labels):
        text.set_fontsize(SMALLER * float(text.get_fontsize()))
    for line in figure.findobj(Line2D):
        line.set_linewidth(SMALLER * line.get_linewidth())
        line.set_markersize(SMALLER * line.get_markersize())


def whole_numbers(axes: Axes) -> None:
    """Let an abscissa have marks at whole numbers alone, as rounds are."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def spread_apart(at: Sequence[float], gap: float) -> list[float]:
    """Return heights as near as possible to ``at`` with at least ``gap`` between neighbours: for
    labels at the ends of lines."""
    order = sorted(range(len(at)), key=lambda i: at[i])
    placed: list[list[float]] = []  # groups of neighbours that touch: [centre, members]
    for i in order:
        placed.append([at[i], 1])
        while (
            len(placed) > 1
            and placed[-1][0] - placed[-2][0] < gap * (placed[-1][1] + placed[-2][1]) / 2
        ):
            (a, n), (b, k) = placed[-2], placed[-1]
            placed[-2:] = [[(a * n + b * k) / (n + k), n + k]]
    heights = [c + gap * (j - (n - 1) / 2) for c, n in placed for j in range(int(n))]
    out = [0.0] * len(at)
    for i, height in zip(order, heights, strict=True):
        out[i] = height
    return out


def shorter(text: str, most: int) -> str:
    """Return the text with at most ``most`` characters, without its middle where it has more: names
    that differ often do so at their ends.

    >>> shorter("University hospital of Graz", 16), shorter("Graz", 16)
    ('Universi…of Graz', 'Graz')
    """
    head, tail = most // 2, most - most // 2 - 1
    return text if len(text) <= most else f"{text[:head].rstrip()}…{text[-tail:].lstrip()}"


def in_lines(text: str, width: int) -> str:
    """Return a name in up to three lines of at most ``width`` characters, broken at blanks where
    there are any. A longer one loses its middle: names that differ often do so at their ends.

    >>> in_lines("lr 0.05, scaffold, power_of_choice", 20)
    'lr 0.05, scaffold,\\npower_of_choice'
    >>> in_lines("abcdefghijklmno", 4)
    'abcd\\nefgh\\n…mno'
    """
    lines = textwrap.wrap(text, width, break_on_hyphens=False) or [""]
    if len(lines) > LINES:
        lines = [*lines[: LINES - 1], f"…{text[1 - width :]}"]
    return "\n".join(lines)


def lines_of(names: Iterable[str]) -> int:
    """Return the number of lines of the highest name."""
    return max((name.count("\n") + 1 for name in names), default=1)


def panel_name(label: str, columns: int) -> str:
    """Return the name of a method as the title of a panel, of which ``columns`` stand beside each
    other in a wide figure."""
    return in_lines(label, 18 if columns > 3 else 28)


def add_legend(figure: Figure, handles: Sequence[Any], names: Sequence[str], size: float) -> None:
    """Write a legend below the panels, in as many columns as fit into :data:`NARROW` inches, which
    is what a telephone shows of a wide picture; the figure becomes higher by its rows.

    Parameters
    ----------
    handles, names: of its entries.
    size: of its letters, in points.
    """
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    font = FontProperties(family=STYLE["font.family"], size=size)
    # a blank has no path
    widths = [
        TextPath((0, 0), line, prop=font).get_extents().x1
        for name in names
        for line in name.split("\n")
        if line.strip()
    ]
    # of matplotlib's legends: the handle, its distance from the name, that between columns
    entry = max(widths, default=0.0) + (2.0 + 0.8 + 2.0) * size
    columns = max(1, min(len(names), int(72 * NARROW // entry)))
    figure.legend(
        handles, names, frameon=False, fontsize=size, loc="outside lower left", ncols=columns
    )
    height = -(-len(names) // columns) * (1.2 * lines_of(names) + 0.5) * size / 72
    figure.set_figheight(figure.get_figheight() + height)
