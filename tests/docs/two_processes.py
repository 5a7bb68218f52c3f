"""The two programs of the README in two processes: ``python tests/docs/two_processes.py``, in an empty folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.docs.pages import blocks  # noqa: E402  found by the line above

SECONDS = 170.0
# A block names the program that it needs; the programs call themselves by these paths.
PROGRAMS = {"consumer.py": "examples/producer.py", "producer.py": "examples/consumer.py"}


def shown() -> tuple[list[str], list[str]]:
    """Return the lines of the two terminals that the README shows side by side, each after its command."""
    text = (ROOT / "README.md").read_text("utf-8").partition("\n## Two processes\n")[2]
    lines = text.partition("```text\n")[2].partition("```")[0].splitlines()
    middle = lines[0].index("$ python examples/consumer.py")
    assert lines[0][:middle].rstrip() == "$ python examples/producer.py"
    return [line[:middle].rstrip() for line in lines[1:]], [line[middle:] for line in lines[1:]]


def main(folder: Path) -> None:
    """Run the programs in a folder, and compare what each prints with what the README shows."""
    (folder / "examples").mkdir()
    for block in blocks("README.md"):
        if block.need in PROGRAMS:
            (folder / PROGRAMS[block.need]).write_text(block.code, "utf-8")
    call = [sys.executable, "-u", "examples/producer.py"]
    with subprocess.Popen(call, cwd=folder, stdout=subprocess.PIPE, text=True) as producer:
        try:
            assert producer.stdout is not None
            first = producer.stdout.readline()  # there is something to read, or the producer has ended
            call = [sys.executable, "examples/consumer.py"]
            consumer = subprocess.run(
                call, cwd=folder, stdout=subprocess.PIPE, text=True, timeout=SECONDS, check=True
            )
            rest, _ = producer.communicate(timeout=SECONDS)
        finally:
            producer.kill()
    assert producer.returncode == 0
    printed = (first + rest).splitlines(), consumer.stdout.splitlines()
    assert printed == shown(), printed


if __name__ == "__main__":
    main(Path.cwd())
