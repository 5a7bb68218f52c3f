"""Tokens that a user gives by file or environment, so that they do not stand in the process list."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from bowstring.client import endpoint_of
from bowstring.dissociated.endpoint import Location
from bowstring.errors import UsageError

if TYPE_CHECKING:
    from bowstring.dissociated.endpoint import Endpoint

__all__ = ["VARIABLE", "endpoint_with_token", "token_apart"]

VARIABLE: Final = "BOWSTRING_TOKEN"
_MOST: Final = 1024


def token_apart(path: str | None) -> str | None:
    """Return the token in the file of ``--token-file``, else that of ``BOWSTRING_TOKEN``, else ``None``.

    Raises
    ------
    UsageError
        The file cannot be read, or holds no token.
    """
    return _token_in(path) if path is not None else os.environ.get(VARIABLE) or None


def endpoint_with_token(uri: str, ticket: str | None, path: str | None) -> Endpoint:
    """Return the endpoint of a URI with the token of the file, else with its own, else that of the environment.

    Raises
    ------
    UsageError
        The URI is not one, or the file cannot be read, or holds no token.
    """
    token = token_apart(path)
    endpoint = endpoint_of(uri, ticket)
    if token is None or (path is None and Location.parse(endpoint.uri).token is not None):
        return endpoint
    return endpoint.with_token(token)


def _token_in(path: str) -> str:
    try:
        with open(path, "rb") as file:
            token = file.read(_MOST + 2).strip()
    except OSError as error:
        raise UsageError("the token file cannot be read", found=error.strerror, where=path) from error
    fault = "it is empty" if not token else "more" if len(token) > _MOST else "not ASCII"
    if not token or len(token) > _MOST or not token.isascii():
        raise UsageError(
            "the token file holds no token",
            expected=f"1 to {_MOST} ASCII characters",
            found=fault,
            where=path,
        )
    return token.decode("ascii")
