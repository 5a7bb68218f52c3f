from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bowstring.cli.arguments import parser
from tests.docker.yaml_subset import parsed

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docker"
IMAGES = ["Dockerfile.cpu", "Dockerfile.cuda"]
COMPOSE = ["compose.yaml", "compose.cuda.yaml"]
KUBERNETES = "spark-kubernetes.yaml"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
INSTRUCTIONS = {"FROM", "ENV", "RUN", "WORKDIR", "COPY", "USER", "ENTRYPOINT", "CMD"}


def instructions(name: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile, each on one line."""
    text = re.sub(r"^#.*\n", "", (FOLDER / name).read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines if line.strip())]


def of_kind(name: str, kind: str) -> list[str]:
    """Return what the instructions of one kind say."""
    return [rest for word, rest in instructions(name) if word == kind]


@pytest.mark.parametrize("name", IMAGES)
def test_images_are_made_of_known_instructions(name: str) -> None:
    """A Dockerfile begins with a base image by name and tag, from no other host, and knows what it does."""
    found = instructions(name)
    assert found[0][0] == "FROM"
    assert {word for word, _ in found} <= INSTRUCTIONS
    for base in of_kind(name, "FROM"):
        assert re.fullmatch(r"[a-z]+:[0-9][a-z0-9.-]+( AS [a-z]+)?", base)
    assert not re.search(r"https?:|index-url|latest", (FOLDER / name).read_text())


@pytest.mark.parametrize("name", IMAGES)
def test_what_images_copy_is_there(name: str) -> None:
    """Every path that is copied exists, or is made by a stage before; so does what the package's links point to."""
    copied: set[str] = set()
    for rest in of_kind(name, "COPY"):
        *sources, _target = rest.split()
        if sources[0].startswith("--from="):
            assert f" AS {sources[0].removeprefix('--from=')}" in (FOLDER / name).read_text()
            made = (source.removeprefix("/build/").removeprefix("/") for source in sources[1:])
            assert all(each == "wheels" or each in copied for each in made), rest
            continue
        copied |= set(sources)
        assert all((ROOT / source).exists() for source in sources), rest
    links = [path for path in (ROOT / "src/bowstring").iterdir() if path.is_symlink()]
    assert {os.path.relpath(link.resolve(), ROOT) for link in links} <= copied
    needed = {PROJECT["readme"], *PROJECT["license-files"], "pyproject.toml", "src"}
    assert needed <= copied
    constraints = re.findall(r"--constraint (\S+)", (FOLDER / name).read_text())
    assert constraints
    assert set(constraints) <= copied


def packages(extras: list[str]) -> Iterator[str]:
    """Yield the packages that some extras ask for."""
    for extra in extras:
        for requirement in PROJECT["optional-dependencies"][extra]:
            own = re.fullmatch(r"bowstring\[([a-z0-9,]+)\]", requirement)
            if own:
                yield from packages(own[1].split(","))
            else:
                match = re.match(r"[A-Za-z0-9-]+", requirement)
                assert match
                yield match[0].lower()


@pytest.mark.parametrize("name", IMAGES)
def test_what_images_install_is_pinned(name: str) -> None:
    """The extras are those of the project, and each package that they ask for has its version."""
    text = (FOLDER / name).read_text()
    found = re.findall(r'--constraint (\S+) (?:--build-constraint \S+ )?"\./?(?:\$1)?\[([a-z0-9,]+)\]"', text)
    assert len(found) == len(of_kind(name, "FROM"))
    for constraints, extras in found:
        pinned = re.findall(r"^([A-Za-z0-9_.-]+)==", (ROOT / constraints).read_text(), re.MULTILINE)
        known = {each.lower().replace("_", "-") for each in pinned}
        wanted = {*packages(extras.split(",")), "numpy", "pyarrow"}
        assert wanted <= known, wanted - known
        if "--build-constraint" in text:
            assert "numba" in known


@pytest.mark.parametrize("name", IMAGES)
def test_images_run_a_command_of_ours_as_a_user(name: str) -> None:
    """What an image runs is a command that there is, as a user that owns the folders it writes to.

    That user is not the one that the kernel shows for users that are not mapped, 65534.
    """
    [user] = of_kind(name, "USER")
    number = user.partition(":")[0]
    assert int(number) not in (0, 65534)
    [folders] = [rest for rest in of_kind(name, "RUN") if rest.startswith("install -d")]
    assert f"-o {number} -g {number} -m 0700" in folders
    variables = dict(re.findall(r"(\w+)=(\S+)", " ".join(of_kind(name, "ENV"))))
    made = shlex.split(folders)[-2:]
    assert [variables["XDG_RUNTIME_DIR"], variables["BOWSTRING_CACHE_DIR"]] == made
    [check] = [rest for rest in of_kind(name, "RUN") if rest.startswith("python -c")]
    ast.parse(shlex.split(check)[2])
    [entry] = of_kind(name, "ENTRYPOINT")
    assert json.loads(entry) == ["bowstring"]
    assert "bowstring" in PROJECT["scripts"]
    parser().parse_args(json.loads(of_kind(name, "CMD")[0]))


def services(*names: str) -> dict[str, dict[str, Any]]:
    """Return the services of compose files, the later ones over the earlier."""
    merged: dict[str, dict[str, Any]] = {}
    for name in names:
        for service, facts in parsed((FOLDER / name).read_text())["services"].items():
            merged.setdefault(service, {}).update(facts)
    return merged


@pytest.mark.parametrize("names", [COMPOSE[:1], COMPOSE])
def test_compose_files_name_what_is_there(names: list[str]) -> None:
    """Both containers run one image that is built from here, share a declared volume, and refer to each other."""
    found = services(*names)
    volumes = parsed((FOLDER / COMPOSE[0]).read_text())["volumes"]
    assert {facts["image"] for facts in found.values()} == {found["producer"]["image"]}
    build = found["producer"]["build"]
    assert (FOLDER / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()
    shared = {volume for facts in found.values() for volume in facts["volumes"]}
    assert {volume.partition(":")[0] for volume in shared} == set(volumes)
    assert len(shared) == 1
    [image] = re.findall(r"XDG_RUNTIME_DIR=(\S+)", (ROOT / build["dockerfile"]).read_text())
    assert shared == {f"run:{image}"}
    for facts in found.values():
        for kind in ("ipc", "pid"):
            kept = facts.get(kind, "shareable")
            assert kept == "shareable" or kept.removeprefix("service:") in found
        assert set(facts.get("depends_on", [])) <= set(found)


def test_gpus_are_given_to_both() -> None:
    """With GPUs, both containers get all of them, and the consumer joins the producer's namespaces."""
    found = services(*COMPOSE)
    given = [facts["deploy"]["resources"]["reservations"]["devices"] for facts in found.values()]
    assert given == [[{"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}]] * 2
    assert (found["consumer"]["ipc"], found["consumer"]["pid"]) == ("service:producer",) * 2
    assert found["producer"]["ipc"] == "shareable"


def test_the_commands_of_the_example_work() -> None:
    """The two commands, run here by processes that share nothing but the folder, hand the flights over."""
    found = services("compose.yaml")
    with tempfile.TemporaryDirectory() as folder:  # short: a socket's path has at most 107 bytes
        environment = os.environ | {
            "XDG_RUNTIME_DIR": folder,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        commands = {
            name: [
                *facts["entrypoint"],
                facts["command"][0].replace("$$", "$").replace("/run/bowstring", folder),
            ]
            for name, facts in found.items()
        }
        producer = subprocess.Popen(commands["producer"], env=environment)
        try:
            done = subprocess.run(commands["consumer"], env=environment, capture_output=True, timeout=60)
        finally:
            producer.terminate()
            producer.wait(30)
    assert done.returncode == 0, done.stderr.decode()
    assert "336,776 rows" in done.stdout.decode() + done.stderr.decode()


def test_the_readme_names_the_files() -> None:
    """The README of the folder names every file in it, and no flag of namespaces is forgotten."""
    text = (FOLDER / "README.md").read_text()
    for name in (*IMAGES, *COMPOSE, "--ipc", "--pid", "--gpus", "--shm-size", "-v run:/run/bowstring"):
        assert name in text
    assert {path.name for path in FOLDER.iterdir()} == {*IMAGES, *COMPOSE, KUBERNETES, "README.md"}
    assert all(path.is_file() for path in (ROOT / each for each in re.findall(r"`(tests/[^`]+)`", text)))


@pytest.mark.parametrize(
    "text", ["a:\n- 1\n  b: 2", "a: 1\na: 2", "a:", "\ta: 1", "a: &x 1", "a: 1\n    b: 2"]
)
def test_the_reader_of_yaml_refuses_the_rest(text: str) -> None:
    """What the subset does not have is refused, so that no mistake is read as something else."""
    with pytest.raises(ValueError):
        parsed(text)
