# SPDX-License-Identifier: Apache-2.0
"""A part of cell.py: matplotlib's backend in a context, and the data behind a figure.

The backend draws as Agg does; show() and the end of a cell show the figures that are open, and close them. Beside PNG
and SVG a figure comes with its chart: what E2B's clients know as line, scatter, bar, pie, box_and_whisker or
superchart. That is read from the artists, except for boxes, whose numbers are nowhere to be read: they are noted when
Axes.bxp() draws them."""
import base64
import io
import math
import re
import weakref

from matplotlib import _pylab_helpers
from matplotlib.axes import Axes
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg

FigureCanvas = FigureCanvasAgg
FigureManager = FigureManagerBase
POINTS_MAX = 20_000  # of a figure; with more there is no chart and no SVG
SVG_MAX = 4 << 20
boxes = weakref.WeakKeyDictionary()


# --- showing ---

def show(*arguments, **options):
    """plt.show(): whatever is open is shown now, before what the cell prints next."""
    show_open()


def show_open():
    managers = _pylab_helpers.Gcf.get_all_fig_managers()
    for manager in managers:
        figure = manager.canvas.figure
        _pylab_helpers.Gcf.destroy(manager)
        if figure.axes or figure.lines or figure.texts or figure.images or figure.patches:
            shown = bundle(figure)
            driver.load("show").send(shown)


def bundle(figure):
    """A figure in all its forms. One that is pyplot's counts as shown from now on."""
    manager = getattr(figure.canvas, "manager", None)
    if manager is not None and manager in _pylab_helpers.Gcf.figs.values():
        _pylab_helpers.Gcf.destroy(manager)
    shown = {"text": repr(figure), "png": base64.b64encode(draw(figure, "png")).decode()}
    if points_of(figure) <= POINTS_MAX:
        add_svg(shown, figure)
        add_chart(shown, figure)
    return shown


def draw(figure, kind):
    data, canvas = io.BytesIO(), figure.canvas
    if not isinstance(canvas, FigureCanvasAgg):
        FigureCanvasAgg(figure)
    try:
        figure.savefig(data, format=kind, bbox_inches="tight")
    finally:
        figure.set_canvas(canvas)
    return data.getvalue()


def add_svg(shown, figure):
    try:
        svg = draw(figure, "svg")
    except Exception as error:  # what has no form as SVG has one as PNG
        driver.load("show").complain(error)
        return
    if len(svg) <= SVG_MAX:
        shown["svg"] = svg.decode()


def add_chart(shown, figure):
    try:
        chart = chart_of(figure)
    except Exception as error:
        driver.load("show").complain(error)
        return
    if chart:
        shown["chart"] = chart


def points_of(figure):
    total = 0
    for axes in figure.axes:
        total += sum(len(line.get_xdata(orig=False)) for line in axes.lines) + len(axes.patches)
        total += sum(len(c.get_offsets()) for c in axes.collections)
    return total


# --- charts ---

def chart_of(figure):
    charts = [axes_chart(axes) for axes in figure.axes if axes.get_visible() and not is_colorbar(axes)]
    charts = [chart for chart in charts if chart]
    if len(charts) == 1:
        return charts[0]
    if not charts:
        return None
    title = getattr(figure, "_suptitle", None)
    return {"type": "superchart", "title": title.get_text() if title else None, "elements": charts}


def is_colorbar(axes):
    return getattr(axes, "_colorbar", None) is not None or axes.get_label() == "<colorbar>"


def axes_chart(axes):
    title = next((t for t in (axes.get_title(loc) for loc in ("center", "left", "right")) if t), None)
    for kind, elements_of, frame_of in KINDS:
        elements = elements_of(axes)
        if elements:
            return {"type": kind, "title": title, **frame_of(axes), "elements": elements}
    if axes.images or axes.collections or axes.patches:
        return {"type": "unknown", "title": title, "elements": []}
    return None


def pie_elements(axes):
    wedges = [patch for patch in axes.patches if type(patch).__name__ == "Wedge"]
    names = [text.get_text() for text in axes.texts]
    return [{"label": label_of(wedge) or name_at(names, wedges, at), "angle": number(wedge.theta2 - wedge.theta1),
             "radius": number(wedge.r)} for at, wedge in enumerate(wedges)]


def name_at(names, wedges, at):
    """Labels are texts of their own where they have no distance from the pie."""
    return names[at * (len(names) // len(wedges))] if len(names) >= len(wedges) else ""


def label_of(artist):
    label = str(artist.get_label() or "")
    return "" if label.startswith("_") else label


def bar_elements(axes):
    elements = []
    containers = [c for c in axes.containers if type(c).__name__ == "BarContainer"]
    for at, container in enumerate(containers):
        across = getattr(container, "orientation", None) == "horizontal"
        group = str(container.get_label() or "")
        group = f"group_{at}" if not group or group.startswith("_") else group
        names = tick_names(axes.yaxis if across else axes.xaxis)
        for bar in container.patches:
            middle = bar.get_y() + bar.get_height() / 2 if across else bar.get_x() + bar.get_width() / 2
            value = bar.get_width() if across else bar.get_height()
            elements.append({"label": name_near(names, middle), "value": number(value), "group": group})
    return elements


def tick_names(axis):
    places = axis.get_majorticklocs()
    return list(zip(places, axis.get_major_formatter().format_ticks(places)))


def name_near(names, middle):
    """The tick's text if there is one at the bar (grouped bars stand within 0.5 of it), else the place itself."""
    place, name = min(names, key=lambda pair: abs(pair[0] - middle), default=(math.inf, ""))
    return name if name and abs(place - middle) <= .5 else f"{middle:g}"


def box_elements(axes):
    found = []
    for number_of_box, (stats, artist) in enumerate(boxes.get(axes, ())):
        if artist is not None and artist.axes is not axes:
            continue  # cleared since
        found.append({"label": str(stats.get("label", number_of_box + 1)), "min": number(stats["whislo"]),
                      "first_quartile": number(stats["q1"]), "median": number(stats["med"]),
                      "third_quartile": number(stats["q3"]), "max": number(stats["whishi"]),
                      "outliers": [number(value) for value in stats.get("fliers", ())]})
    return found


def scatter_elements(axes):
    clouds = [c for c in axes.collections if type(c).__name__ == "PathCollection" and len(c.get_offsets())]
    return [{"label": label_of(cloud) or f"line_{at}",
             "points": [[place(axes.xaxis, x), place(axes.yaxis, y)] for x, y in cloud.get_offsets().tolist()]}
            for at, cloud in enumerate(clouds)]


def line_elements(axes):
    elements = []
    for at, line in enumerate(axes.lines):
        if line.get_transform() != axes.transData and not line.get_transform().contains_branch(axes.transData):
            continue
        xs, ys = line.get_xdata(orig=False), line.get_ydata(orig=False)
        elements.append({"label": label_of(line) or f"line_{at}",
                         "points": [[place(axes.xaxis, x), place(axes.yaxis, y)] for x, y in zip(xs, ys)]})
    return elements


def is_dates(axis):
    converter = axis.get_converter() if hasattr(axis, "get_converter") else axis.converter
    return "Date" in type(converter).__name__


def place(axis, value):
    """A coordinate: a date where the axis has dates."""
    value = number(value)
    if value is None or not is_dates(axis):
        return value
    from matplotlib import dates

    return dates.num2date(value).replace(tzinfo=None).isoformat()


def number(value):
    value = float(value)
    return value if math.isfinite(value) else None


def unit_of(label):
    found = re.search(r"[(\[]([^()\[\]]+)[)\]]\s*$", label)
    return found[1] if found else None


def axis_frame(axis, prefix):
    label, low, high = axis.get_label().get_text(), *sorted(axis.get_view_interval())
    places = [value for value in axis.get_majorticklocs() if low <= value <= high]
    formatter = axis.get_major_formatter()
    return {f"{prefix}_label": label or None, f"{prefix}_unit": unit_of(label),
            f"{prefix}_ticks": [place(axis, value) for value in places],
            f"{prefix}_tick_labels": list(formatter.format_ticks(places)),
            f"{prefix}_scale": "datetime" if is_dates(axis) else axis.get_scale()}


def point_frame(axes):
    return {**axis_frame(axes.xaxis, "x"), **axis_frame(axes.yaxis, "y")}


def label_frame(axes):
    found = {}
    for prefix, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        label = axis.get_label().get_text()
        found.update({f"{prefix}_label": label or None, f"{prefix}_unit": unit_of(label)})
    return found


KINDS = (("pie", pie_elements, lambda axes: {}), ("box_and_whisker", box_elements, label_frame),
         ("bar", bar_elements, label_frame), ("scatter", scatter_elements, point_frame),
         ("line", line_elements, point_frame))


def note_boxes(draw_boxes):
    def bxp(self, bxpstats, *arguments, **options):
        bxpstats = list(bxpstats)
        drawn = draw_boxes(self, bxpstats, *arguments, **options)
        artists = drawn.get("medians") or [None] * len(bxpstats)
        boxes.setdefault(self, []).extend(zip(bxpstats, artists))
        return drawn

    bxp.__doc__, bxp.__name__ = draw_boxes.__doc__, draw_boxes.__name__
    return bxp


Axes.bxp = note_boxes(Axes.bxp)
