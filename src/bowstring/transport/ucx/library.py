"""libucp by ctypes: where the library is found, and its functions."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
from collections.abc import Iterator, Sequence
from ctypes import c_char_p, c_int, c_int8, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bowstring.errors import MissingDependency

_OLDEST: Final = (1, 22)
_HINT: Final = (
    "pip install 'bowstring[ucx-cu13]' (or ucx-cu12); a library of the system needs UCX 1.22 or later."
)
# In the order in which each needs those before it.
_NAMES: Final = ("libucs.so.0", "libuct.so.0", "libucp.so.0")
# A Java virtual machine in the process has uses of its own for signals; with these UCX leaves them alone. And what
# fails is told by errors of ours, not on the standard output of the program.
_DEFAULTS: Final = {
    "UCX_ERROR_SIGNALS": "",
    "UCX_HANDLE_ERRORS": "none",
    "UCX_LOG_LEVEL": "fatal",
    "UCX_WARN_UNUSED_ENV_VARS": "n",
}

_P: Final = c_void_p
# `ucs_status_t` is a packed enumeration: one byte.
_STATUS: Final = c_int8
_FUNCTIONS: Final[dict[str, tuple[Any, Sequence[Any]]]] = {
    "ucp_get_version": (None, (_P, _P, _P)),
    "ucp_config_read": (_STATUS, (c_char_p, c_char_p, _P)),
    "ucp_config_modify": (_STATUS, (_P, c_char_p, c_char_p)),
    "ucp_config_release": (None, (_P,)),
    "ucp_init_version": (_STATUS, (c_uint, c_uint, _P, _P, _P)),
    "ucp_context_query": (_STATUS, (_P, _P)),
    "ucp_cleanup": (None, (_P,)),
    "ucp_worker_create": (_STATUS, (_P, _P, _P)),
    "ucp_worker_destroy": (None, (_P,)),
    "ucp_worker_progress": (c_uint, (_P,)),
    "ucp_worker_get_efd": (_STATUS, (_P, _P)),
    "ucp_worker_arm": (_STATUS, (_P,)),
    "ucp_worker_set_am_recv_handler": (_STATUS, (_P, _P)),
    "ucp_listener_create": (_STATUS, (_P, _P, _P)),
    "ucp_listener_query": (_STATUS, (_P, _P)),
    "ucp_listener_reject": (_STATUS, (_P, _P)),
    "ucp_listener_destroy": (None, (_P,)),
    "ucp_conn_request_query": (_STATUS, (_P, _P)),
    "ucp_ep_create": (_STATUS, (_P, _P, _P)),
    "ucp_ep_query": (_STATUS, (_P, _P)),
    "ucp_ep_close_nbx": (_P, (_P, _P)),
    "ucp_ep_flush_nbx": (_P, (_P, _P)),
    "ucp_tag_send_nbx": (_P, (_P, _P, c_size_t, c_uint64, _P)),
    "ucp_tag_send_sync_nbx": (_P, (_P, _P, c_size_t, c_uint64, _P)),
    "ucp_tag_probe_nb": (_P, (_P, c_uint64, c_uint64, c_int, _P)),
    "ucp_tag_msg_recv_nbx": (_P, (_P, _P, c_size_t, _P, _P)),
    "ucp_am_send_nbx": (_P, (_P, c_uint, _P, c_size_t, _P, c_size_t, _P)),
    "ucp_am_recv_data_nbx": (_P, (_P, _P, _P, c_size_t, _P)),
    "ucp_am_data_release": (None, (_P, _P)),
    "ucp_mem_map": (_STATUS, (_P, _P, _P)),
    "ucp_mem_unmap": (_STATUS, (_P, _P)),
    "ucp_rkey_pack": (_STATUS, (_P, _P, _P, _P)),
    "ucp_rkey_buffer_release": (None, (_P,)),
    "ucp_ep_rkey_unpack": (_STATUS, (_P, _P, _P)),
    "ucp_rkey_destroy": (None, (_P,)),
    "ucp_get_nbx": (_P, (_P, _P, c_size_t, c_uint64, _P, _P)),
    "ucp_request_check_status": (_STATUS, (_P,)),
    "ucp_request_query": (_STATUS, (_P, _P)),
    "ucp_request_free": (None, (_P,)),
}


class Library:
    """The functions of one libucp as attributes, without their ``ucp_``, with the types of their arguments."""

    def __init__(self, ucp: ctypes.CDLL, ucs: ctypes.CDLL) -> None:
        for name, (result, arguments) in _FUNCTIONS.items():
            function = ucp[name]
            function.restype, function.argtypes = result, tuple(arguments)
            setattr(self, name.removeprefix("ucp_"), function)
        self._status_string = ucs["ucs_status_string"]
        self._status_string.restype, self._status_string.argtypes = c_char_p, (c_int8,)
        self.version = _version_of(ucp)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return a function."""

    def words(self, status: int) -> str:
        """Return what UCX calls a status."""
        text: bytes = self._status_string(status)
        return text.decode(errors="replace")


def _version_of(ucp: ctypes.CDLL) -> tuple[int, int, int]:
    major, minor, release = c_uint(), c_uint(), c_uint()
    ucp["ucp_get_version"](ctypes.byref(major), ctypes.byref(minor), ctypes.byref(release))
    return major.value, minor.value, release.value


def wheel_folder() -> Path | None:
    """Return the folder of the libraries in the wheel ``libucx-cu12`` or ``libucx-cu13``, if one is installed."""
    try:
        spec = importlib.util.find_spec("libucx")
    except (ImportError, ValueError):
        return None
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    folders = [Path(place, "lib") for place in places]
    return next((folder for folder in folders if (folder / _NAMES[-1]).exists()), None)


@functools.cache
def library() -> Library:
    """Load libucp, that of the wheel or else that of the system, once."""
    folder = wheel_folder()
    with _environment():
        try:
            # Each by itself: the libraries of a system are found by the loader, those of a wheel by their folder.
            loaded = [ctypes.CDLL(name if folder is None else str(folder / name)) for name in _NAMES]
        except OSError as error:
            raise MissingDependency("ucx: needs libucp", found=str(error), hint=_HINT) from None
    ucs, _, ucp = loaded
    version = _version_of(ucp)
    if version[:2] < _OLDEST:
        raise MissingDependency(
            "ucx: needs a later libucp",
            expected=".".join(map(str, _OLDEST)),
            found=".".join(map(str, version)),
            hint=_HINT,
        )
    return Library(ucp, ucs)


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    """Have some settings of UCX in the environment, which it reads when it is loaded, where the user has none."""
    added = {name: value for name, value in _DEFAULTS.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
