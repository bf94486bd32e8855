"""The plot of a run: what each cost does as something grows, one panel a family of rows."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from measure import Row

NEEDED: Final = "a plot needs matplotlib: pip install 'session-query[bench]'"

_COLUMNS: Final = 3
_PANEL_INCHES: Final = (5.0, 3.6)
_ROOM: Final = 3
"""Room above and below a curve, so that one that is all but flat looks flat."""
_LINES: Final[dict[str, dict[str, Any]]] = {
    "ours": {"color": "tab:blue", "marker": "o", "linewidth": 2},
    "plain": {"color": "tab:red", "marker": "s", "linestyle": "--"},
    "limit": {"color": "tab:gray", "marker": "^", "linestyle": ":"},
}


def pyplot() -> Any:
    """matplotlib, set to write files; ``SystemExit`` with what to install where it is missing."""
    try:
        matplotlib = importlib.import_module("matplotlib")
        matplotlib.use("agg")
        return importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise SystemExit(NEEDED) from error


def families(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The curves of a run: rows of one family, by size."""
    points = sorted((one for one in rows if one.size is not None), key=lambda one: one.family)
    grouped = groupby(points, key=lambda one: one.family)
    return {name: sorted(found, key=lambda one: one.size or 0) for name, found in grouped}


def write_plot(rows: Sequence[Row], path: Path) -> None:
    """Draw the curves of a run on logarithmic axes, so that flat is flat and n is a diagonal."""
    curves = families(rows)
    if not curves:
        raise SystemExit("nothing to plot: none of these benchmarks has a size that grows")
    lines = -(-len(curves) // _COLUMNS)
    size = (_COLUMNS * _PANEL_INCHES[0], lines * _PANEL_INCHES[1])
    figure, axes = pyplot().subplots(lines, _COLUMNS, figsize=size, squeeze=False)
    for panel in axes.flat[len(curves) :]:
        panel.remove()
    for panel, (name, found) in zip(axes.flat, curves.items(), strict=False):
        for column, style in _LINES.items():
            points = [
                (one.size, value) for one in found if (value := getattr(one, column)) is not None
            ]
            if points:
                panel.plot(*zip(*points, strict=True), label=column, **style)
        panel.set(title=name, xscale="log", yscale="log", ylabel=found[0].unit)
        low, high = panel.get_ylim()
        panel.set_ylim(low / _ROOM, high * _ROOM)
        panel.grid(visible=True, which="major", alpha=0.3)
        panel.legend(loc="upper left")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
