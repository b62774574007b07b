# SPDX-License-Identifier: Apache-2.0
"""Templates for tests: small packages of our own, an index and a registry on loopback, files made byte by byte."""

import base64
import contextlib
import hashlib
import http.server
import io
import json
import os
import struct
import subprocess
import tarfile
import threading
import time
import zipfile

from .daemon import cli

PAYLOAD = 16384
HEADER = struct.Struct("<8sIIQq32s32s16s128s8192s")
LAYER, ROOTFS = 1, 2


def seal(archive, kind=LAYER, base=b"", recipe=b"pip x\n", version=1, language=b"python"):
    """The bytes of a template's file with a right digest."""

    created = int(time.time())

    def header(digest):
        fields = (b"CORDONT", version, kind, len(archive), created, digest, bytes(32), language, base, recipe)
        return HEADER.pack(*fields).ljust(PAYLOAD, b"\0")

    digest = hashlib.sha256(header(bytes(32)) + archive).digest()
    return header(digest) + archive


def place(state, name, data):
    """Puts a file where `cordon template create` would."""
    folder = os.path.join(state, "templates")
    os.makedirs(folder, mode=0o755, exist_ok=True)
    path = os.path.join(folder, name + ".template")
    with open(path + ".part", "wb") as file:
        file.write(data)
    os.chmod(path + ".part", 0o644)
    os.rename(path + ".part", path)
    return path


def flip(path, at=-1):
    """Changes one byte, in place."""
    with open(path, "r+b") as file:
        file.seek(at, os.SEEK_END if at < 0 else os.SEEK_SET)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))


def member(name, data=b"", **fields):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    info.mode = fields.pop("mode", 0o644)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def tar(*members, mode="w", format=tarfile.PAX_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=format) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data) if data else None)
    return out.getvalue()


def wheel(name, version, files):
    """A wheel of plain modules, with a console script where entry names one."""
    info = f"{name}-{version}.dist-info"
    entries = dict(files)
    entries[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    entries[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    entries[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*entries, f"{info}/RECORD"])
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for path, text in entries.items():
            archive.writestr(path, text)
    return out.getvalue()


def npm_package(name, version, source):
    package = {"name": name, "version": version, "main": "index.js"}
    return tar(
        member("package/package.json", json.dumps(package).encode()),
        member("package/index.js", source.encode()),
        mode="w:gz",
    )


WHEELS = {
    "cordon_first": wheel(
        "cordon_first",
        "1.0",
        {
            "cordon_first.py": "def answer():\n    return 42\n\ndef tool():\n    print('tool runs')\n",
            "cordon_first-1.0.dist-info/entry_points.txt": "[console_scripts]\ncordon-first=cordon_first:tool\n",
        },
    ),
    "cordon_second": wheel("cordon_second", "2.1", {"cordon_second/__init__.py": "NAME = 'second'\n"}),
}
NPM = {
    "cordon-left": ("1.0.0", npm_package("cordon-left", "1.0.0", "module.exports = (a, b) => a + b;\n")),
    "cordon-right": (
        "3.2.1",
        npm_package("cordon-right", "3.2.1", "exports.twice = (n) => require('cordon-left')(n, n);\n"),
    ),
}


class Packages(http.server.BaseHTTPRequestHandler):
    """/simple/NAME/ and /files/… for pip, /npm/NAME and /npm/NAME.tgz for npm."""

    def log_message(self, *_):
        pass

    def answer(self, data, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        parts = [part for part in self.path.split("?")[0].split("/") if part]
        address = f"http://{self.headers['Host']}"
        if len(parts) == 2 and parts[0] == "simple" and parts[1].replace("-", "_") in WHEELS:
            name = parts[1].replace("-", "_")
            version = {"cordon_first": "1.0", "cordon_second": "2.1"}[name]
            file = f"{name}-{version}-py3-none-any.whl"
            digest = hashlib.sha256(WHEELS[name]).hexdigest()
            page = f'<html><body><a href="{address}/files/{name}/{file}#sha256={digest}">{file}</a></body></html>'
            return self.answer(page.encode(), "text/html")
        if len(parts) == 3 and parts[0] == "files" and parts[1] in WHEELS:
            return self.answer(WHEELS[parts[1]], "application/zip")
        if len(parts) == 2 and parts[0] == "npm" and parts[1] in NPM:
            whole = about_npm(parts[1], f"{address}/npm")
            return self.answer(json.dumps(whole).encode(), "application/json")
        if len(parts) == 2 and parts[0] == "npm" and parts[1].removesuffix(".tgz") in NPM:
            return self.answer(NPM[parts[1].removesuffix(".tgz")][1], "application/octet-stream")
        return self.send_error(404)


def about_npm(name, address):
    """What a registry tells of a package."""
    version, package = NPM[name]
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(package).digest()).decode()
    about = {"name": name, "version": version, "dist": {"tarball": f"{address}/{name}.tgz", "integrity": integrity}}
    return {"name": name, "dist-tags": {"latest": version}, "versions": {version: about}}


def write_sources(folder, npm_address):
    """The same as files below a folder that some server shows: simple/ for pip, npm/ for npm."""

    def write(path, data):
        full = os.path.join(folder, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as file:
            file.write(data)

    for name, data in WHEELS.items():
        version = {"cordon_first": "1.0", "cordon_second": "2.1"}[name]
        file = f"{name}-{version}-py3-none-any.whl"
        write(f"simple/{name.replace('_', '-')}/index.html", f'<html><body><a href="{file}">{file}</a></body></html>'.encode())
        write(f"simple/{name.replace('_', '-')}/{file}", data)
    for name, (_, package) in NPM.items():
        write(f"npm/{name}.tgz", package)
        write(f"npm/{name}", json.dumps(about_npm(name, npm_address)).encode())


@contextlib.contextmanager
def package_server():
    """(index URL for pip, registry URL for npm)"""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Packages)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        base = f"http://127.0.0.1:{server.server_address[1]}"
        yield base + "/simple/", base + "/npm/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def imported(state, archive, name="tree", **settings):
    """`cordon template create NAME --import -`."""
    return cli("template", "create", name, "--import", "-", "--state", state, stdin=archive, timeout=120, **settings)


def bash_tree(*more):
    """A file tree with nothing but bash and the libraries that it needs, as an archive's members."""
    shown = subprocess.run(["ldd", "/bin/bash"], capture_output=True, text=True, check=True).stdout
    paths = [word for line in shown.splitlines() for word in line.split() if word.startswith("/")]
    members = [member("usr/", type=tarfile.DIRTYPE, mode=0o755), member("bin", type=tarfile.SYMTYPE, linkname="usr/bin")]
    members.append(member("usr/bin/bash", open("/bin/bash", "rb").read(), mode=0o755))
    for path in paths:
        members.append(member(path.lstrip("/"), open(path, "rb").read(), mode=0o755))
    members.append(member("etc/os-release", b"ID=cordon-test\n"))
    return [*members, *more]
