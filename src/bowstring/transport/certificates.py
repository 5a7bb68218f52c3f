"""Certificates for ``tls:``: which ones an end shows, and whom it trusts."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import ssl
from collections.abc import Iterator
from typing import Any, Final

from bowstring.errors import BowstringError, MissingFile, UsageError
from bowstring.memory.slab import NO_DESCRIPTOR

WHOM_TO_TRUST: Final = (
    "connect(tls=bow.TlsConfig(ca=…)) says whom to trust; the certificate must name the host that is dialled."
)
"""What a client can do where the certificate of a server is not accepted."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """The certificates of one end of ``tls:`` connections, as paths of PEM files. It pickles.

    Parameters
    ----------
    cert
        The certificate that this end shows, with those that lead to its authority. A server must have one.
    key
        The private key of `cert`, not encrypted; by default it is in the same file.
    ca
        The authorities that this end trusts. A client trusts those of its system by default. A server that has this
        asks its clients for certificates, and lets no others in.

    Examples
    --------
    >>> TlsConfig(cert="/etc/bowstring/server.pem", ca="/etc/bowstring/ca.pem").key is None
    True
    """

    cert: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None
    ca: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, str | os.PathLike | None):
                raise UsageError(f"TlsConfig.{field.name} is the path of a PEM file", found=repr(value)[:80])
        if self.key is not None and self.cert is None:
            raise UsageError("a key without its certificate", hint="TlsConfig(cert=…, key=…)")

    def for_server(self) -> ssl.SSLContext:
        """Return what a server shakes hands by.

        Raises
        ------
        UsageError
            There is no certificate, or a file cannot be read.
        """
        if self.cert is None:
            raise UsageError(
                "a TLS server needs a certificate",
                hint="Give TlsConfig(cert=…, key=…).",
            )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        # Nobody resumes a session, and what a client leaves unread can cut off what it sent.
        context.num_tickets = 0
        self._load(context)
        if self.ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def for_client(self) -> ssl.SSLContext:
        """Return what a client shakes hands by.

        Raises
        ------
        UsageError
            A file cannot be read.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        self._load(context)
        if self.ca is None:
            context.load_default_certs()
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        if self.cert is not None:
            with _reading("certificate and key", self.cert, self.key):
                context.load_cert_chain(self.cert, self.key, _no_password)
        if self.ca is not None:
            with _reading("trusted authorities", self.ca):
                context.load_verify_locations(self.ca)


@contextlib.contextmanager
def _reading(what: str, *paths: str | os.PathLike[str] | None) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        if isinstance(error, BowstringError) or getattr(error, "errno", None) in NO_DESCRIPTOR:
            raise  # which the registry of transports names
        why = error.reason if isinstance(error, ssl.SSLError) else getattr(error, "strerror", None)
        wrong = MissingFile if isinstance(error, FileNotFoundError) else UsageError
        raise wrong(
            f"{what} cannot be read",
            expected="PEM files that belong together",
            found=why or str(error),
            where=", ".join(os.fspath(path) for path in paths if path is not None),
        ) from error


def _no_password() -> str:
    # OpenSSL would ask for it on the terminal.
    raise UsageError("the private key is encrypted", hint="Give an ssl.SSLContext that has loaded it.")


def server_context(tls: TlsConfig | ssl.SSLContext | None) -> ssl.SSLContext:
    """Return the context for a server's handshakes; raise `UsageError` for a missing one or one for clients."""
    given = _checked(tls or TlsConfig(), ssl.PROTOCOL_TLS_SERVER, "server")
    return given if isinstance(given, ssl.SSLContext) else given.for_server()


def client_context(tls: TlsConfig | ssl.SSLContext | None) -> ssl.SSLContext:
    """Return the context for a client's handshakes; raise `UsageError` for one for servers."""
    if tls is None:
        return _of_system(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    given = _checked(tls, ssl.PROTOCOL_TLS_CLIENT, "client")
    return given if isinstance(given, ssl.SSLContext) else given.for_client()


@functools.lru_cache(4)
def _of_system(file: str | None, folder: str | None) -> ssl.SSLContext:  # noqa: ARG001  which OpenSSL looks at
    # Authorities of a system take some 50 ms to read, and a connection less than 5.
    return TlsConfig().for_client()


def asks_certificates(tls: TlsConfig | ssl.SSLContext | None) -> bool:
    """Whether a server with it lets only clients in that have a certificate of a trusted authority."""
    if isinstance(tls, ssl.SSLContext):
        return tls.verify_mode == ssl.CERT_REQUIRED
    return tls is not None and tls.ca is not None


def names_in(context: ssl.SSLContext) -> list[str]:
    """Return the hosts that a server's certificate names; empty if it cannot be read, as with TLS 1.2.

    `ssl` shows a certificate only to a client, so this makes a handshake in memory.
    """
    seen, trusting = (ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) for _ in range(2))
    seen.check_hostname = trusting.check_hostname = False
    seen.verify_mode = ssl.CERT_NONE
    trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate itself is the authority
    with contextlib.suppress(OSError, ValueError):  # of which ssl.SSLError is one
        trusting.load_verify_locations(cadata=_shaken(context, seen).getpeercert(True) or b"")
        shown: dict[str, Any] = _shaken(context, trusting).getpeercert() or {}
        return [name for kind, name in shown.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]
    return []


def _shaken(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """Return a client that has shaken hands with a server, as far as that goes without more of its own."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    there, here = server.wrap_bio(to_server, to_client, True), client.wrap_bio(to_client, to_server)
    for end in (here, there, here):
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    return here


def _checked(tls: TlsConfig | ssl.SSLContext, protocol: int, side: str) -> TlsConfig | ssl.SSLContext:
    if not isinstance(tls, TlsConfig | ssl.SSLContext):
        raise UsageError(
            "not what TLS is spoken by", expected="a TlsConfig or an ssl.SSLContext", found=repr(tls)
        )
    if isinstance(tls, ssl.SSLContext) and tls.protocol not in (protocol, ssl.PROTOCOL_TLS):
        raise UsageError(
            f"the SSLContext is not one of a {side}",
            expected=f"ssl.SSLContext(ssl.PROTOCOL_TLS_{side.upper()})",
            found=repr(tls.protocol),
        )
    return tls
