"""A matplotlib figure that a notebook shows as a picture, also where no backend for notebooks is
active."""

from __future__ import annotations

import io

from matplotlib.figure import Figure

PIXELS_PER_INCH = 110


class ShownFigure(Figure):
    """A figure that a notebook shows when it is the value of a cell."""

    def _repr_png_(self) -> bytes:
        out = io.BytesIO()
        self.savefig(out, format="png", dpi=PIXELS_PER_INCH)
        return out.getvalue()
