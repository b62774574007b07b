# SPDX-License-Identifier: Apache-2.0
"""A part of cell.py: values in all the forms in which they can be shown, as one JSON object.

Keys are text, html, markdown, svg, png, jpeg, pdf, latex, json, javascript, data, chart, and extra for other types;
binary ones in base64. `driver` is cell.py."""
import base64
import json
import os
import sys
import types

TEXT_MAX = 1 << 20
JSON_MAX = 1 << 20
DATA_CELLS = 100_000  # of a table that is told as data too
KEYS = {"text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg",
        "image/png": "png", "image/jpeg": "jpeg", "application/pdf": "pdf", "text/latex": "latex",
        "application/json": "json", "application/javascript": "javascript", "e2b/data": "data", "e2b/chart": "chart"}
METHODS = {"html": "_repr_html_", "markdown": "_repr_markdown_", "svg": "_repr_svg_", "png": "_repr_png_",
           "jpeg": "_repr_jpeg_", "pdf": "_repr_pdf_", "latex": "_repr_latex_", "json": "_repr_json_",
           "javascript": "_repr_javascript_"}
BINARY = ("png", "jpeg", "pdf")


def show(value, main=False):
    send(bundle(value), main)


def send(shown, main=False):
    shown["main"] = main
    fit(shown)
    driver.flush()  # what was printed before stands before it
    driver.send_object(driver.SHOW, shown)


def fit(shown):
    """Takes away the largest forms until the rest can be sent, and says so."""
    sizes = {key: len(value) if isinstance(value, str) else len(json.dumps(value)) for key, value in shown.items()
             if key != "main"}
    while sum(sizes.values()) > driver.SHOW_MAX * 3 // 4:  # the rest is room for escapes
        largest = max(sizes, key=sizes.get)
        del shown[largest], sizes[largest]
        shown.setdefault("dropped", []).append(largest)


def bundle(value):
    """All forms of a value. What fails to give one does without."""
    shown = {}
    if figure_of(value):
        return driver.load("plot").bundle(value)
    if not isinstance(value, type):
        add_mimebundle(shown, value)
        for key, method in METHODS.items():
            add_method(shown, key, value, method)
        add_plain_json(shown, value)
        add_table(shown, value)
    shown.setdefault("text", text_of(value))
    return shown


def figure_of(value):
    figure = sys.modules.get("matplotlib.figure")
    return figure is not None and isinstance(value, figure.Figure)


def text_of(value):
    try:
        text = repr(value)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        complain(error)
        text = object.__repr__(value)
    return text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + f"… ({len(text)} characters in all)"


def complain(error):
    print(f"showing a value failed: {type(error).__name__}: {error}", file=sys.stderr)


def call(value, method, *arguments, **options):
    try:
        found = getattr(value, method, None)
        return found(*arguments, **options) if callable(found) else None
    except NotImplementedError:
        return None
    except Exception as error:
        complain(error)
        return None


def add_mimebundle(shown, value):
    if not hasattr(type(value), "_repr_mimebundle_"):
        return
    found = call(value, "_repr_mimebundle_", include=None, exclude=None)
    found = found[0] if isinstance(found, tuple) and found else found
    if isinstance(found, dict):
        for mime, data in found.items():
            add(shown, mime, data)


def add_method(shown, key, value, method):
    if key in shown or not hasattr(type(value), method):
        return
    found = call(value, method)
    add_key(shown, key, found[0] if isinstance(found, tuple) and found else found)


def add(shown, mime, data):
    if mime in KEYS:
        add_key(shown, KEYS[mime], data)
    elif json_of(data) is not None:
        shown.setdefault("extra", {})[str(mime)] = data


def add_key(shown, key, data):
    if data is None:
        return
    if isinstance(data, (bytes, bytearray)):
        data = base64.b64encode(data).decode() if key in BINARY else data.decode("utf-8", "replace")
    if key in ("json", "data", "chart"):
        if json_of(data) is not None:
            shown[key] = data
    elif isinstance(data, str):
        shown[key] = data


def json_of(value):
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None
    return text if len(text) <= JSON_MAX else None


def add_plain_json(shown, value):
    if type(value) in (dict, list) and "json" not in shown and json_of(value) is not None:
        shown["json"] = value


def add_table(shown, value):
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(value, getattr(pandas, "DataFrame", ())) or value.size > DATA_CELLS:
        return
    try:
        shown["data"] = {str(name): [plain(item) for item in value.iloc[:, at].tolist()]
                         for at, name in enumerate(value.columns)}
    except Exception as error:
        complain(error)


def plain(item):
    """As JSON has it: no NaN, times as ISO 8601, what it has no form for as text."""
    if item is None or isinstance(item, (str, bool, int)):
        return item
    if isinstance(item, float):
        return item if item - item == 0 else None
    if type(item).__name__ in ("NaTType", "NAType"):
        return None
    if hasattr(item, "isoformat"):
        return item.isoformat()
    return str(item)


# --- what programs call ---

def display(*values, include=None, exclude=None, metadata=None, raw=False, **ignored):
    for value in values:
        shown = {}
        if raw and isinstance(value, dict):
            for mime, data in value.items():
                add(shown, mime, data)
        else:
            shown = bundle(value)
        send(shown)


class Shown:
    """What IPython.display has classes for: data of one kind, given or read from a file or address."""

    key = "text"

    def __init__(self, data=None, url=None, filename=None, metadata=None, **options):
        if filename is None and url is None and isinstance(data, str) and self.names_file(data):
            filename, data = data, None
        if filename is not None:
            with open(filename, "rb") as file:
                data = file.read()
        elif url is not None and data is None:
            import urllib.request

            with urllib.request.urlopen(url) as answer:
                data = answer.read()
        self.data = data
        self.options = options

    def names_file(self, data):
        return False

    def _repr_mimebundle_(self, include=None, exclude=None):
        shown = {}
        add_key(shown, self.key, self.data)
        return {mime: shown[key] for mime, key in KEYS.items() if key in shown}

    def __repr__(self):
        return f"<IPython.core.display.{type(self).__name__} object>"


class Image(Shown):
    @property
    def key(self):
        data = self.data if isinstance(self.data, bytes) else b""
        return "jpeg" if data[:2] == b"\xff\xd8" else "png"

    def names_file(self, data):
        return len(data) < 4096 and os.path.isfile(data)


def shown_class(name, key):
    return type(name, (Shown,), {"key": key})


def fill_ipython(module):
    """What stands in for IPython where that is not installed: its display functions, nothing else of it."""
    if module.__name__ in ("IPython", "IPython.core"):
        module.__path__ = []
        module.get_ipython = lambda: None
        module.version_info, module.__version__ = (0, 0, 0), "0.0.0"
    names = {"HTML": "html", "Markdown": "markdown", "Latex": "latex", "Math": "latex", "SVG": "svg", "JSON": "json",
             "Javascript": "javascript", "Pretty": "text"}
    module.__dict__.update({name: shown_class(name, key) for name, key in names.items()})
    module.Image, module.DisplayObject = Image, Shown
    module.display = display
    module.clear_output = lambda wait=False: None
    module.publish_display_data = lambda data, metadata=None, **ignored: display(data, raw=True)
    for name, key in (("display_html", "html"), ("display_markdown", "markdown"), ("display_png", "png"),
                      ("display_svg", "svg"), ("display_latex", "latex"), ("display_json", "json")):
        setattr(module, name, only(key))


def only(key):
    def display_one(*values, raw=False, **ignored):
        for value in values:
            shown = {}
            add_key(shown, key, value if raw else bundle(value).get(key))
            shown.setdefault("text", text_of(value))
            send(shown)

    return display_one
