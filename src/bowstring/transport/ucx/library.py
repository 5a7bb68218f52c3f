"""libucp by ctypes: where the library is found, its structures and its functions, as ``ucp.h`` of 1.22 has them.

Only what the transport needs is here. Every structure of UCX begins with a mask of the fields that are set, so that
later versions can add some: a library of 1.22 or later takes these.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import functools
import importlib.util
import os
from collections.abc import Iterator, Sequence
from ctypes import c_char, c_char_p, c_int, c_int8, c_size_t, c_uint, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bowstring.errors import MissingDependency

__all__ = [
    "AmHandler",
    "AmReceived",
    "ConnectionCallback",
    "ConnectionRequestAttributes",
    "ContextAttributes",
    "EndpointAttributes",
    "EndpointParams",
    "ErrorCallback",
    "Iov",
    "Library",
    "ListenerAttributes",
    "ListenerParams",
    "MapParams",
    "Params",
    "RequestAttributes",
    "RequestParams",
    "Status",
    "TagInfo",
    "WorkerParams",
    "library",
    "wheel_folder",
]

_OLDEST: Final = (1, 22)
_HINT: Final = (
    "pip install 'bowstring[ucx-cu13]' (or ucx-cu12); a library of the system needs UCX 1.22 or later."
)
# In the order in which each needs those before it.
_NAMES: Final = ("libucs.so.0", "libuct.so.0", "libucp.so.0")
# A Java virtual machine in the process has uses of its own for signals; with these UCX leaves them alone. And what
# fails is told by errors of ours, not on the standard output of whatever program this is.
_DEFAULTS: Final = {
    "UCX_ERROR_SIGNALS": "",
    "UCX_HANDLE_ERRORS": "none",
    "UCX_LOG_LEVEL": "fatal",
    "UCX_WARN_UNUSED_ENV_VARS": "n",
}


class Status(enum.IntEnum):
    """``ucs_status_t``: what a call came to."""

    OK = 0
    IN_PROGRESS = 1
    NO_MESSAGE = -1
    NO_RESOURCE = -2
    IO_ERROR = -3
    NO_MEMORY = -4
    INVALID_PARAM = -5
    UNREACHABLE = -6
    INVALID_ADDRESS = -7
    NOT_IMPLEMENTED = -8
    TRUNCATED = -9
    NO_PROGRESS = -10
    BUFFER_TOO_SMALL = -11
    NO_ELEMENT = -12
    SOME_CONNECTS_FAILED = -13
    NO_DEVICE = -14
    BUSY = -15
    CANCELED = -16
    SHMEM_SEGMENT = -17
    ALREADY_EXISTS = -18
    OUT_OF_RANGE = -19
    TIMED_OUT = -20
    EXCEEDS_LIMIT = -21
    UNSUPPORTED = -22
    REJECTED = -23
    NOT_CONNECTED = -24
    CONNECTION_RESET = -25
    ENDPOINT_TIMEOUT = -80


class _SockAddr(ctypes.Structure):
    _fields_ = (("addr", c_void_p), ("addrlen", c_uint32))


class _Handler(ctypes.Structure):
    _fields_ = (("cb", c_void_p), ("arg", c_void_p))


class Params(ctypes.Structure):
    """``ucp_params_t``."""

    FEATURES: Final = 1 << 0
    MT_WORKERS_SHARED: Final = 1 << 5
    TAG: Final = 1 << 0
    RMA: Final = 1 << 1
    WAKEUP: Final = 1 << 4
    AM: Final = 1 << 6
    _fields_ = (
        ("field_mask", c_uint64),
        ("features", c_uint64),
        ("request_size", c_size_t),
        ("request_init", c_void_p),
        ("request_cleanup", c_void_p),
        ("tag_sender_mask", c_uint64),
        ("mt_workers_shared", c_int),
        ("estimated_num_eps", c_size_t),
        ("estimated_num_ppn", c_size_t),
        ("name", c_char_p),
        ("node_local_id", c_size_t),
    )


class ContextAttributes(ctypes.Structure):
    """``ucp_context_attr_t``."""

    MEMORY_TYPES: Final = 1 << 2
    _fields_ = (
        ("field_mask", c_uint64),
        ("request_size", c_size_t),
        ("thread_mode", c_int),
        ("memory_types", c_uint64),
        ("name", c_char * 32),
        ("device_counter_size", c_size_t),
    )


class WorkerParams(ctypes.Structure):
    """``ucp_worker_params_t``."""

    THREAD_MODE: Final = 1 << 0
    FLAGS: Final = 1 << 5
    CLIENT_ID: Final = 1 << 8
    SERIALIZED: Final = 1
    MULTI: Final = 2
    IGNORE_REQUEST_LEAK: Final = 1 << 0
    _fields_ = (
        ("field_mask", c_uint64),
        ("thread_mode", c_int),
        ("cpu_mask", c_uint64 * 16),
        ("events", c_uint),
        ("user_data", c_void_p),
        ("event_fd", c_int),
        ("flags", c_uint64),
        ("name", c_char_p),
        ("am_alignment", c_size_t),
        ("client_id", c_uint64),
    )


class ListenerParams(ctypes.Structure):
    """``ucp_listener_params_t``."""

    SOCK_ADDR: Final = 1 << 0
    CONN_HANDLER: Final = 1 << 2
    _fields_ = (
        ("field_mask", c_uint64),
        ("sockaddr", _SockAddr),
        ("accept_handler", _Handler),
        ("conn_handler", _Handler),
    )


class ListenerAttributes(ctypes.Structure):
    """``ucp_listener_attr_t``."""

    SOCKADDR: Final = 1 << 0
    _fields_ = (("field_mask", c_uint64), ("sockaddr", c_char * 128))


class ConnectionRequestAttributes(ctypes.Structure):
    """``ucp_conn_request_attr_t``."""

    CLIENT_ADDR: Final = 1 << 0
    CLIENT_ID: Final = 1 << 1
    _fields_ = (("field_mask", c_uint64), ("client_address", c_char * 128), ("client_id", c_uint64))


class EndpointParams(ctypes.Structure):
    """``ucp_ep_params_t``."""

    REMOTE_ADDRESS: Final = 1 << 0
    ERR_HANDLING_MODE: Final = 1 << 1
    ERR_HANDLER: Final = 1 << 2
    SOCK_ADDR: Final = 1 << 4
    FLAGS: Final = 1 << 5
    CONN_REQUEST: Final = 1 << 6
    CLIENT_SERVER: Final = 1 << 0
    NO_LOOPBACK: Final = 1 << 1
    SEND_CLIENT_ID: Final = 1 << 2
    MODE_NONE: Final = 0
    MODE_PEER: Final = 1
    _fields_ = (
        ("field_mask", c_uint64),
        ("address", c_void_p),
        ("err_mode", c_int),
        ("err_handler", _Handler),
        ("user_data", c_void_p),
        ("flags", c_uint),
        ("sockaddr", _SockAddr),
        ("conn_request", c_void_p),
        ("name", c_char_p),
        ("local_sockaddr", _SockAddr),
    )


class _TransportEntry(ctypes.Structure):
    _fields_ = (("transport_name", c_char_p), ("device_name", c_char_p))


class _Transports(ctypes.Structure):
    _fields_ = (
        ("entries", ctypes.POINTER(_TransportEntry)),
        ("num_entries", c_uint),
        ("entry_size", c_size_t),
    )


class EndpointAttributes(ctypes.Structure):
    """``ucp_ep_attr_t``."""

    REMOTE_SOCKADDR: Final = 1 << 2
    TRANSPORTS: Final = 1 << 3
    Entry: Final = _TransportEntry
    _fields_ = (
        ("field_mask", c_uint64),
        ("name", c_char * 32),
        ("local_sockaddr", c_char * 128),
        ("remote_sockaddr", c_char * 128),
        ("transports", _Transports),
        ("user_data", c_void_p),
    )


class MapParams(ctypes.Structure):
    """``ucp_mem_map_params_t``."""

    ADDRESS: Final = 1 << 0
    LENGTH: Final = 1 << 1
    PROT: Final = 1 << 3
    MEMORY_TYPE: Final = 1 << 4
    LOCAL_READ: Final = 1 << 0
    REMOTE_READ: Final = 1 << 8
    _fields_ = (
        ("field_mask", c_uint64),
        ("address", c_void_p),
        ("length", c_size_t),
        ("flags", c_uint),
        ("prot", c_uint),
        ("memory_type", c_int),
        ("exported_memh_buffer", c_void_p),
    )


class TagInfo(ctypes.Structure):
    """``ucp_tag_recv_info_t``."""

    _fields_ = (("sender_tag", c_uint64), ("length", c_size_t))


class Iov(ctypes.Structure):
    """``ucp_dt_iov_t``."""

    _fields_ = (("buffer", c_void_p), ("length", c_size_t))


class RequestParams(ctypes.Structure):
    """``ucp_request_param_t``."""

    DATATYPE: Final = 1 << 3
    FLAGS: Final = 1 << 4
    MEMORY_TYPE: Final = 1 << 6
    CONTIGUOUS: Final = 1 << 3  # ucp_dt_make_contig(1)
    IOV: Final = 2
    AM_REPLY: Final = 1 << 0
    FORCE_CLOSE: Final = 1 << 0
    _fields_ = (
        ("op_attr_mask", c_uint32),
        ("flags", c_uint32),
        ("request", c_void_p),
        ("cb", c_void_p),
        ("datatype", c_uint64),
        ("user_data", c_void_p),
        ("reply_buffer", c_void_p),
        ("memory_type", c_int),
        ("recv_info", c_void_p),
        ("memh", c_void_p),
        ("remote_datatype", c_uint64),
        ("remote", c_void_p),
        ("remote_count", c_size_t),
    )


class RequestAttributes(ctypes.Structure):
    """``ucp_request_attr_t``."""

    INFO_STRING: Final = 1 << 0
    INFO_STRING_SIZE: Final = 1 << 1
    _fields_ = (
        ("field_mask", c_uint64),
        ("debug_string", c_char_p),
        ("debug_string_size", c_size_t),
        ("status", c_int8),
        ("mem_type", c_int),
    )


class AmReceived(ctypes.Structure):
    """``ucp_am_recv_param_t``."""

    DATA: Final = 1 << 16
    RENDEZVOUS: Final = 1 << 17
    _fields_ = (("recv_attr", c_uint64), ("reply_ep", c_void_p))


class AmHandler(ctypes.Structure):
    """``ucp_am_handler_param_t``."""

    ID: Final = 1 << 0
    FLAGS: Final = 1 << 1
    CALLBACK: Final = 1 << 2
    WHOLE_MESSAGE: Final = 1 << 0
    Callback: Final = ctypes.CFUNCTYPE(
        c_int8, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, ctypes.POINTER(AmReceived)
    )
    _fields_ = (
        ("field_mask", c_uint64),
        ("id", c_uint),
        ("flags", c_uint32),
        ("cb", c_void_p),
        ("arg", c_void_p),
    )


ConnectionCallback = ctypes.CFUNCTYPE(None, c_void_p, c_void_p)
ErrorCallback = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_int8)

_P: Final = c_void_p
# `ucs_status_t` is a packed enumeration: one byte.
_STATUS: Final = c_int8
_FUNCTIONS: Final[dict[str, tuple[Any, Sequence[Any]]]] = {
    "ucp_get_version_string": (c_char_p, ()),
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
    "ucp_tag_recv_nbx": (_P, (_P, _P, c_size_t, c_uint64, c_uint64, _P)),
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
    "ucp_worker_query": (_STATUS, (_P, _P)),
    "ucp_worker_release_address": (None, (_P, _P)),
    "ucp_request_check_status": (_STATUS, (_P,)),
    "ucp_request_query": (_STATUS, (_P, _P)),
    "ucp_request_cancel": (None, (_P, _P)),
    "ucp_request_free": (None, (_P,)),
}


class Library:
    """The functions of one libucp as attributes, without their ``ucp_``, with the types of their arguments.

    Parameters
    ----------
    ucp, ucs
        The libraries.

    Attributes
    ----------
    version : tuple of int
        Of the library that was loaded, such as ``(1, 22, 0)``.
    """

    def __init__(self, ucp: ctypes.CDLL, ucs: ctypes.CDLL) -> None:
        self._functions: dict[str, Any] = {}
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
        found = importlib.util.find_spec("libucx")
    except (ImportError, ValueError):
        return None
    places = [] if found is None else list(found.submodule_search_locations or ())
    folders = [Path(place, "lib") for place in places]
    return next((folder for folder in folders if (folder / _NAMES[-1]).exists()), None)


@functools.cache
def library() -> Library:
    """Load libucp, that of the wheel or else that of the system, once.

    Raises
    ------
    MissingDependency
        There is none, it is too old, or it cannot be loaded.
    """
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
