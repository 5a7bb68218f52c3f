"""The documentation as a site: built without a warning, no link is broken, nothing public is missing."""

from __future__ import annotations

import functools
import http.server
import json
import os
import queue
import re
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import bowstring as bow
from tests.public.surface import MODULES

pytest.importorskip("mkdocs")
pytest.importorskip("material")
pytest.importorskip("mkdocstrings_handlers.python")

ROOT = Path(__file__).parents[2]
LISTS = ROOT / "tests" / "data" / "public"
LINE = re.compile(
    r"(?P<inside>    )?(?:class |def |classmethod |staticmethod )?(?P<module>module )?(?P<name>\w+)(?P<as>: as )?.*"
)
SECONDS = 240.0


def test_pictures_are_those_that_the_script_draws(tmp_path: Path) -> None:
    """The pictures of the pages were drawn by the script that is there, and each is on a page."""
    program = (
        "import sys, pathlib, runpy; drawn = runpy.run_path(sys.argv[1]);"
        "drawn['main'].__globals__['FOLDER'] = pathlib.Path(sys.argv[2]); drawn['main']()"
    )
    script = ROOT / "scripts" / "docs" / "pictures.py"
    subprocess.run([sys.executable, "-c", program, str(script), str(tmp_path)], check=True, timeout=SECONDS)
    images = ROOT / "docs" / "images"
    assert {each.name for each in tmp_path.iterdir()} == {each.name for each in images.glob("*.svg")}
    pages = "".join(page.read_text("utf-8") for page in [*(ROOT / "docs").rglob("*.md"), ROOT / "mkdocs.yml"])
    for drawn in tmp_path.iterdir():
        assert drawn.read_text("utf-8") == (images / drawn.name).read_text("utf-8")
        assert re.search(rf"images/{re.escape(drawn.name)}(\)|$)", pages, re.MULTILINE)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a site that was built by the command of ``make docs``; broken links are errors."""
    folder = tmp_path_factory.mktemp("site")
    [command] = [line for line in of_make_docs() if "mkdocs" in line]
    # mkdocs counts no warnings where it is told to be quiet.
    built = subprocess.run(
        f"{command} --site-dir {shlex.quote(os.fspath(folder))}",
        shell=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    return folder


def of_make_docs() -> list[str]:
    """Return the commands that ``make docs`` would run, by this Python."""
    make = ["make", "--dry-run", "--no-print-directory", f"RUN={shlex.quote(sys.executable)}", "docs"]
    done = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=True)
    return done.stdout.splitlines()


def test_it_needs_no_compiled_kernels() -> None:
    """``make docs`` installs packages and builds the site, and compiles nothing."""
    commands = of_make_docs()
    assert not [each for each in commands if "kernels.build" in each]
    assert len(commands) == 2


def test_it_is_built_without_a_warning(site: Path) -> None:
    """The site has its start page, and a page for each of the modules whose public names are kept."""
    assert (site / "index.html").is_file()
    assert {*MODULES, "torch", "errors", "command_line"} == {
        path.stem for path in (site / "reference").glob("*.html")
    }


@pytest.mark.parametrize("area", MODULES)
def test_nothing_public_is_missing(site: Path, area: str) -> None:
    """Each public name of a module, and each member that is no operator, has a heading or is named as inherited."""
    page = (site / "reference" / f"{area}.html").read_text("utf-8")
    headings = set(re.findall(r'id="(bowstring\.[\w.]+)"', page))
    named = set(re.findall(r"<code>(\w+)</code>", page)) | _of_pyarrow(page)
    owner, missing, seen = "", [], 0
    for line in (LISTS / f"{area}.txt").read_text("utf-8").partition("For other modules")[0].splitlines():
        if (found := LINE.fullmatch(line)) is None or found["name"].startswith("__"):
            continue
        seen += 1
        name = f"{owner}.{found['name']}" if found["inside"] else found["name"]
        owner = owner if found["inside"] else name
        constructor = bool(found["inside"]) and found["name"] == owner
        elsewhere = found["name"] in named and (found["inside"] or found["as"] or found["module"])
        if not (f"{MODULES[area]}.{name}" in headings or constructor or elsewhere):
            missing.append(name)
    assert seen
    assert not missing


def _of_pyarrow(page: str) -> set[str]:
    """Return the members of enumerations that are pyarrow's own: the page names these as a whole."""
    import pyarrow.ipc

    found = re.findall(r"<code>pyarrow\.(?:\w+\.)*(\w+)</code>", page)
    return {each for name in found for each in dir(getattr(pyarrow.ipc, name, None))}


def test_each_error_has_its_heading(site: Path) -> None:
    """The page of the errors has each error of the tree."""
    page = (site / "reference" / "errors.html").read_text("utf-8")
    tree = (LISTS / "errors.txt").read_text("utf-8").partition("\n\n")[0]
    names = [line.split()[0] for line in tree.splitlines()]
    assert len(names) > 20
    for name in names:
        assert f'id="bowstring.errors.{name}"' in page


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    """Scripts, styles, fonts and pictures of every page come with the site."""
    loading = re.compile(
        r'<(?:script|img|iframe|source)[^>]* src="?(?:https?:)?//|<link[^>]* href="?(?:https?:)?//'
    )
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    for page in pages:
        for tag in loading.findall(page.read_text("utf-8")):
            assert "canonical" in tag, page
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", style.read_text("utf-8")), style


def test_every_page_says_its_version(site: Path) -> None:
    """The logo is at the head of a page, and the version of Bowstring at its foot."""
    for page in [site / "index.html", site / "reference" / "bowstring.html"]:
        text = page.read_text("utf-8")
        assert f"Bowstring {bow.__version__}" in text
        assert "images/logo.svg" in text


def test_docstrings_are_shown_as_they_are_meant(site: Path) -> None:
    """No role of reStructuredText is left in the text of a page, and examples are code, not quotations."""
    for page in (site / "reference").glob("*.html"):
        text = page.read_text("utf-8")
        assert not re.search(r":(?:class|func|meth|mod|attr|data|exc):", text), page
        assert "<blockquote>" not in text, page


def test_fields_that_are_not_for_users_are_left_out(site: Path) -> None:
    """Of the attributes that the docstring of a class names, the page has those that are public."""
    page = (site / "reference" / "bowstring.html").read_text("utf-8")
    batch = page[page.index('id="bowstring.Batch"') : page.index('id="bowstring.Buffer"')]
    attributes = batch.partition("Attributes:")[2].partition("</ul>")[0]
    assert "custom_metadata" in attributes
    assert "variadic_counts" not in attributes


_MEASURE = """
<body><script>
(async () => {
  const faults = [];
  for (const [page, width] of PAGES) {
    const frame = document.createElement("iframe");
    frame.width = width; frame.height = 900; frame.src = page;
    document.body.append(frame);
    await new Promise(loaded => frame.onload = loaded);
    const inside = frame.contentDocument;
    if (inside.documentElement.scrollWidth > width) faults.push([page, width, "the page"]);
    const wide = width > 1000 ? inside.querySelectorAll("article pre > code, .md-typeset__scrollwrap") : [];
    for (const each of wide)
      if (each.scrollWidth > each.clientWidth + 1) faults.push([page, width, each.textContent.slice(0, 60)]);
    frame.remove();
  }
  await fetch("measured", {method: "POST", body: JSON.stringify(faults)});
})();
</script></body>
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed")
def test_pages_fit_windows_of_common_widths(site: Path, tmp_path: Path) -> None:
    """No page scrolls sideways at 1,366 or 500 pixels; at 1,366 neither does code or a table of a guide."""
    pages = sorted(os.fspath(page.relative_to(site)) for page in site.rglob("*.html"))
    # The generated reference has signatures of any length.
    others = ("reference/", "repository/", "decisions/", "404")
    asked = [(page, width) for page in pages if not page.startswith(others) for width in (500, 1366)]
    (site / "measure.html").write_text(_MEASURE.replace("PAGES", json.dumps(asked)), "utf-8")
    told: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_POST(self) -> None:
            told.put(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

    handler = functools.partial(Handler, directory=os.fspath(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{served.server_port}/measure.html"
        # With --virtual-time-budget and --dump-dom Chromium may wait for ever; the port keeps it running instead.
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
        command = ["chromium", *flags, f"--user-data-dir={tmp_path}", address]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as browser:
            try:
                faults = told.get(timeout=SECONDS)
            finally:
                browser.terminate()
        served.shutdown()
    assert json.loads(faults) == []
