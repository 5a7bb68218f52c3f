"""Certificates of an authority that is made for the run, and what servers and clients take of them."""

from __future__ import annotations

import dataclasses
import functools
import tempfile
from pathlib import Path

import trustme

import bowstring as bow
from bowstring import transport
from bowstring.limits import Limits
from bowstring.transport import Channel, Listener


@dataclasses.dataclass(frozen=True)
class Authority:
    """An authority, and the folder of its files."""

    ca: trustme.CA
    folder: Path

    @property
    def path(self) -> str:
        """The authority's own certificate."""
        return str(self.folder / "ca.pem")

    def issue(self, *names: str, **options: object) -> str:
        """Return a new certificate of some hosts, with its key and what leads to the authority, in one file."""
        cert = self.ca.issue_cert(*names, **options)  # type: ignore[arg-type]  # as trustme takes them
        file = f"{len(list(self.folder.iterdir()))}-{names[0].replace(':', '_')}.pem"
        return self.written(file, cert.private_key_and_cert_chain_pem)

    def written(self, name: str, blob: trustme.Blob) -> str:
        """Return the path of something that was written into the folder."""
        path = self.folder / name
        blob.write_to_path(str(path))
        return str(path)


@functools.cache
def authority(name: str = "the trusted one") -> Authority:
    """Return one of the authorities of this run, by whatever name."""
    folder = tempfile.TemporaryDirectory(prefix="bowstring-tests-")
    _folders.append(folder)  # until the interpreter ends
    made = Authority(trustme.CA(organization_name=name), Path(folder.name))
    made.written("ca.pem", made.ca.cert_pem)  # once: threads may be reading it
    return made


_folders: list[tempfile.TemporaryDirectory[str]] = []


@functools.cache
def serving() -> bow.TlsConfig:
    """Return what a server on loopback shows."""
    return bow.TlsConfig(cert=authority().issue("127.0.0.1", "::1", "localhost"))


@functools.cache
def trusting() -> bow.TlsConfig:
    """Return what a client of such a server trusts."""
    return bow.TlsConfig(ca=authority().path)


def shown_at(address: str) -> bow.TlsConfig | None:
    """Return what a server shows at an address: the certificate where that is of ``tls:``."""
    return serving() if address.startswith("tls:") else None


# As a transport of its own, ``certified:``, for the kit, which names addresses and nothing else.


def listen(address: str, limits: Limits, **_: object) -> Listener:
    """Listen as ``tls:`` does, with the certificate for loopback."""
    return transport.listen(f"tls{address.removeprefix('certified')}", limits, tls=serving())


def dial(address: str, limits: Limits, deadline: float, **_: object) -> Channel:
    """Dial as ``tls:`` does, and trust the authority."""
    return transport.dial(f"tls{address.removeprefix('certified')}", limits, deadline, tls=trusting())
