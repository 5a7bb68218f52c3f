"""Files outside of ``docs`` that pages link to, below ``repository/`` in the site, and the version that pages say.

A hook of MkDocs. Pages link to them as they do in the repository, and MkDocs checks these links like all others.
"""

from __future__ import annotations

import os
import posixpath
import re
import tomllib
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")


def on_config(config: Any) -> Any:
    """Say at the foot of each page which version it is about."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    config["copyright"] = f"Bowstring {version}, Apache-2.0"
    return config


def _in_repository(page: str) -> str:
    """Return the path in the repository of what has this path in the site."""
    return page.removeprefix("repository/") if page.startswith("repository/") else f"docs/{page}"


def _in_site(path: str) -> str:
    """Return the path in the site of a file of the repository."""
    return path.removeprefix("docs/") if path.startswith("docs/") else f"repository/{path}"


def _target(page: str, link: str) -> str:
    """Return the path in the repository that a link of a page leads to; a folder is its README."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(_in_repository(page)), link))
    return f"{path}/README.md" if (ROOT / path / "README.md").is_file() else path


def on_files(files: Files, config: Any) -> Files:
    """Add what pages link to, and what those pages link to."""
    waiting = [
        each.src_uri for each in files.documentation_pages() if not each.src_uri.startswith("reference/")
    ]
    while waiting:
        page = waiting.pop()
        for _, link, _ in _LINK.findall((ROOT / _in_repository(page)).read_text("utf-8")):
            target = _target(page, link)
            new = _in_site(target)
            if (
                not target.startswith("docs/")
                and (ROOT / target).is_file()
                and files.get_file_from_path(new) is None
            ):
                files.append(File.generated(config, new, abs_src_path=os.fspath(ROOT / target)))
                waiting += [new] if new.endswith(".md") else []
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links of a page lead to where their files are in the site."""
    here = page.file.src_uri

    def moved(link: re.Match[str]) -> str:
        before, path, after = link.groups()
        target = _target(here, path)
        if not (ROOT / target).is_file() or here.startswith("reference/"):
            return link[0]  # MkDocs says if it is wrong
        return before + posixpath.relpath(_in_site(target), posixpath.dirname(here) or ".") + after

    return _LINK.sub(moved, markdown)
