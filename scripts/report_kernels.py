"""What each kernel takes of a GPU, read from the machine code of the build: no GPU, and no disassembler.

    python scripts/report_kernels.py [--capability 9.0] [WORD…]

Registers, bytes of stack, and how often the code of each signature whose name holds one of the words loads and
stores so many bytes at once. Neighbouring threads that store a byte each fill a quarter of what one store can.
"""

from __future__ import annotations

import argparse
import collections
import sys
import zipfile
from typing import Final, NamedTuple

import numpy as np

from bowstring.kernels import archive
from bowstring.kernels.signature import signatures

# Instructions have sixteen bytes: the lowest twelve bits say what they do, three bits of the other word how wide.
_LOAD: Final = 0x981
_STORE: Final = 0x986
_WIDTHS: Final = (1, 1, 2, 2, 4, 8, 16, 0)
_SECTION: Final = np.dtype(
    {
        "names": ["name", "offset", "size"],
        "formats": ["<u4", "<u8", "<u8"],
        "offsets": [0, 24, 32],
        "itemsize": 64,
    }
)
# Attributes that hold, behind the number of a symbol, its registers, and the bytes of its stack frame.
_REGISTERS: Final = b"\x04\x2f\x08\x00"
_FRAME: Final = b"\x04\x11\x08\x00"


class Use(NamedTuple):
    """What a kernel takes: registers, bytes of stack, and how many of its loads and stores have each width."""

    registers: int
    stack: int
    loads: dict[int, int]
    stores: dict[int, int]


def use_of(code: bytes) -> Use:
    """Return what a file of machine code (ELF) states about one kernel."""
    [start] = np.frombuffer(code, "<u8", 1, 0x28).tolist()
    count, names = np.frombuffer(code, "<u2", 2, 0x3C).tolist()
    sections = np.frombuffer(code, _SECTION, count, start)
    found = {}
    for section in sections:
        at = int(sections[names]["offset"]) + int(section["name"])
        name = code[at : code.index(b"\0", at)].decode()
        found[".text" if name.startswith(".text.") else name] = section
    text, told = (
        code[int(each["offset"]) : int(each["offset"] + each["size"])]
        for each in (found[".text"], found[".nv.info"])
    )
    low, high = np.frombuffer(text, "<u8").reshape(-1, 2).T
    does, width = low & np.uint64(0xFFF), (high >> np.uint64(9)) & np.uint64(7)
    loads, stores = (
        dict(sorted(collections.Counter(_WIDTHS[each] for each in width[does == kind].tolist()).items()))
        for kind in (_LOAD, _STORE)
    )
    places = (told.index(each) + 8 for each in (_REGISTERS, _FRAME))
    registers, stack = (int.from_bytes(told[at : at + 4], "little") for at in places)
    return Use(registers, stack, loads, stores)


def main(arguments: list[str] | None = None) -> int:
    """Print a line for each signature; return 1 where the build compiled none."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--capability", default="9.0", help="of the GPU, by default 9.0")
    chosen = parser.parse_args(arguments)
    major, minor = map(int, chosen.capability.split("."))
    built = archive.load()
    if not isinstance(built, archive.Archive):
        print(built.reason, file=sys.stderr)
        return 1
    print("regs stack  loads: times x bytes      stores                    kernel")
    with zipfile.ZipFile(built.path) as file:
        for signature in signatures():
            if chosen.words and not any(word in str(signature) for word in chosen.words):
                continue
            use = use_of(file.read(f"{archive.folder_of((major, minor))}/{signature.name}"))
            loads, stores = (
                ", ".join(f"{times}x{width}" for width, times in each.items())
                for each in (use.loads, use.stores)
            )
            print(f"{use.registers:4} {use.stack:5}  {loads:25} {stores:25} {signature}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
