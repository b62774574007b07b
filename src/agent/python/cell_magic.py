# SPDX-License-Identifier: Apache-2.0
"""A part of cell.py: the few lines of IPython's own language that cells are full of. Only asked for what is no Python.

    !command         NAME = !command        %pip ...   %cd DIR   %env [N[=V]]   %matplotlib ...
    %%bash, %%sh (the whole cell)           %%writefile FILE      %%time

Each line becomes a call of a function here, in the same line, so that tracebacks keep their numbers."""
import os
import re
import subprocess
import sys

CALL = "__import__('sys').modules['cordon_cell_magic']"
ASSIGN = re.compile(r"^(\s*)([\w.,\s]+?)\s*=\s*!(.*)$")
COMMAND = re.compile(r"^(\s*)!(.*)$")
LINE = re.compile(r"^(\s*)%(\w+)\s*(.*)$")
CELL = re.compile(r"^%%(\w+)[ \t]*([^\n]*)\n?(.*)$", re.S)


def translate(code):
    """The cell as Python, or None when nothing of it is known here."""
    whole = CELL.match(code.lstrip("\n"))
    if whole:
        name, rest, body = whole.groups()
        if name == "time":
            return body
        return f"{CALL}.cell({name!r}, {rest!r}, {body!r})"
    lines = [translate_line(line) for line in code.split("\n")]
    changed = "\n".join(lines)
    return changed if changed != code else None


def translate_line(line):
    found = ASSIGN.match(line)
    if found:
        return f"{found[1]}{found[2]} = {CALL}.lines({found[3]!r})"
    found = COMMAND.match(line)
    if found:
        return f"{found[1]}{CALL}.shell({found[2]!r})"
    found = LINE.match(line)
    if found:
        return f"{found[1]}{CALL}.line({found[2]!r}, {found[3]!r})"
    return line


def fill_in(command):
    """{expression} and $name, of the program's names, as IPython does where it can; else as it stands."""
    names = driver.state.names

    def value(found):
        try:
            return str(eval(found[1] or found[2], names))
        except Exception:
            return found[0]

    return re.sub(r"\{([^{}]+)\}|(?<!\$)\$([A-Za-z_]\w*)", value, command)


def shell(command):
    driver.flush()
    status = subprocess.run(["/bin/sh", "-c", fill_in(command)], stdin=subprocess.DEVNULL).returncode
    driver.state.names["_exit_code"] = status


def lines(command):
    driver.flush()
    done = subprocess.run(["/bin/sh", "-c", fill_in(command)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    driver.state.names["_exit_code"] = done.returncode
    return done.stdout.decode("utf-8", "replace").splitlines()


def line(name, rest):
    if name == "pip":
        shell(f"{sys.executable} -m pip {rest}")
        __import__("importlib").invalidate_caches()
    elif name == "cd":
        os.chdir(os.path.expanduser(rest.strip() or "~"))
        print(os.getcwd())
    elif name == "env":
        return environment(rest)
    elif name not in ("matplotlib", "autoreload", "load_ext"):
        raise NameError(f"line magic %{name} is not supported here; %pip, %cd, %env, %matplotlib and !command are")


def environment(rest):
    name, given, value = rest.strip().partition("=")
    if given:
        os.environ[name.strip()] = value.strip()
        return None
    return os.environ.get(name) if name else dict(os.environ)


def cell(name, rest, body):
    driver.flush()
    if name in ("bash", "sh"):
        subprocess.run([f"/bin/{name}", "-c", body], stdin=subprocess.DEVNULL, check=True)
    elif name == "writefile":
        with open(os.path.expanduser(rest.strip()), "w") as file:
            file.write(body)
        print(f"Writing {rest.strip()}")
    else:
        raise NameError(f"cell magic %%{name} is not supported here; %%bash, %%sh, %%writefile and %%time are")
