"""Curves and bars as SVG, which scales and needs nothing to be loaded. Text stays text, so the browser has the glyphs."""

import io
from base64 import b64encode
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from tasks.train.metrics import StepMetrics

POINTS = 400
"""A curve of more steps is drawn through the means of so many groups of them."""
SIZE = (5.2, 2.4)
LINE, LIGHT = "#2a6099", "#b9d0e6"
SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "mindpretrain",
    "font.family": "sans-serif",
    "font.size": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
}
CURVES = (
    ("loss", "loss, nats a token"),
    ("learning_rate", "learning rate"),
    ("gradient_norm", "gradient norm"),
    ("tokens_per_second", "tokens/s"),
)


def training_charts(steps: Sequence[StepMetrics]) -> dict[str, str]:
    """Return an SVG for each curve of a training, by its title."""
    charts = {}
    for name, title in CURVES:
        points = [(step.step, value) for step in steps if (value := getattr(step, name)) is not None]
        if points:
            charts[title] = line_chart([x for x, _ in points], [y for _, y in points])
    return charts


def line_chart(steps: Sequence[int], values: Sequence[float]) -> str:
    """Return a curve over training steps."""
    with rc_context(SETTINGS):
        figure = Figure(figsize=SIZE, layout="constrained")
        axes = figure.subplots()
        xs, ys = _thinned(steps, values)
        axes.plot(xs, ys, color=LINE, linewidth=1.4)
        axes.set_xlabel("step")
        axes.margins(x=0.01)
        axes.ticklabel_format(axis="y", scilimits=(-3, 5))
        return _svg(figure)


def bar_chart(labels: Sequence[str], values: Sequence[float], unit: str) -> str:
    """Return horizontal bars, the first on top."""
    with rc_context(SETTINGS):
        figure = Figure(figsize=(SIZE[0], 0.6 + 0.28 * len(labels)), layout="constrained")
        axes = figure.subplots()
        bars = axes.barh(range(len(labels)), values, color=LIGHT)
        axes.set_yticks(range(len(labels)), labels)
        axes.bar_label(bars, fmt="{:,.0f}", padding=3)
        axes.invert_yaxis()
        axes.set_xlabel(unit)
        axes.margins(x=0.18)
        return _svg(figure)


def as_image(svg: str, text: str) -> str:
    """Return an SVG as an image in Markdown that holds its own data."""
    return f"![{text}](data:image/svg+xml;base64,{b64encode(svg.encode()).decode()})"


def _thinned(steps: Sequence[int], values: Sequence[float]) -> tuple[list[float], list[float]]:
    size = max(1, -(-len(steps) // POINTS))
    groups = range(0, len(steps), size)
    return [fmean(steps[i : i + size]) for i in groups], [fmean(values[i : i + size]) for i in groups]


def _svg(figure: Figure) -> str:
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    return text[text.index("<svg") :]
