"""Structures, constants and types of callbacks of libucp, as ``ucp.h`` of 1.22 has them.

Only what the transport needs is here. Every structure of UCX begins with a mask of the fields that are set, so that
later versions can add some: a library of 1.22 or later takes these.
"""

from __future__ import annotations

import ctypes
import enum
from ctypes import c_char, c_char_p, c_int, c_int8, c_size_t, c_uint, c_uint32, c_uint64, c_void_p
from typing import Final


class Status(enum.IntEnum):
    """``ucs_status_t``: what a call came to."""

    OK = 0
    IN_PROGRESS = 1
    INVALID_PARAM = -5
    BUSY = -15


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

    ERR_HANDLING_MODE: Final = 1 << 1
    ERR_HANDLER: Final = 1 << 2
    SOCK_ADDR: Final = 1 << 4
    FLAGS: Final = 1 << 5
    CONN_REQUEST: Final = 1 << 6
    CLIENT_SERVER: Final = 1 << 0
    NO_LOOPBACK: Final = 1 << 1
    SEND_CLIENT_ID: Final = 1 << 2
    MODE_NONE: Final = 0
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


class RequestParams(ctypes.Structure):
    """``ucp_request_param_t``."""

    DATATYPE: Final = 1 << 3
    FLAGS: Final = 1 << 4
    MEMORY_TYPE: Final = 1 << 6
    IOV: Final = 2
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
