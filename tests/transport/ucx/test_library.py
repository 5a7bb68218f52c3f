"""The binding agrees with the header that the wheel brings."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from bowstring.transport.ucx import structures as binding
from bowstring.transport.ucx.library import library, wheel_folder

STRUCTURES: dict[str, type[ctypes.Structure]] = {
    "ucp_params_t": binding.Params,
    "ucp_context_attr_t": binding.ContextAttributes,
    "ucp_worker_params_t": binding.WorkerParams,
    "ucp_listener_params_t": binding.ListenerParams,
    "ucp_listener_attr_t": binding.ListenerAttributes,
    "ucp_conn_request_attr_t": binding.ConnectionRequestAttributes,
    "ucp_ep_params_t": binding.EndpointParams,
    "ucp_ep_attr_t": binding.EndpointAttributes,
    "ucp_mem_map_params_t": binding.MapParams,
    "ucp_tag_recv_info_t": binding.TagInfo,
    "ucp_request_param_t": binding.RequestParams,
    "ucp_request_attr_t": binding.RequestAttributes,
    "ucp_am_recv_param_t": binding.AmReceived,
    "ucp_am_handler_param_t": binding.AmHandler,
}
CONSTANTS = {
    "UCP_PARAM_FIELD_FEATURES": binding.Params.FEATURES,
    "UCP_PARAM_FIELD_MT_WORKERS_SHARED": binding.Params.MT_WORKERS_SHARED,
    "UCP_FEATURE_TAG": binding.Params.TAG,
    "UCP_FEATURE_RMA": binding.Params.RMA,
    "UCP_FEATURE_WAKEUP": binding.Params.WAKEUP,
    "UCP_FEATURE_AM": binding.Params.AM,
    "UCP_ATTR_FIELD_MEMORY_TYPES": binding.ContextAttributes.MEMORY_TYPES,
    "UCP_WORKER_PARAM_FIELD_THREAD_MODE": binding.WorkerParams.THREAD_MODE,
    "UCP_WORKER_PARAM_FIELD_FLAGS": binding.WorkerParams.FLAGS,
    "UCP_WORKER_PARAM_FIELD_CLIENT_ID": binding.WorkerParams.CLIENT_ID,
    "UCS_THREAD_MODE_SERIALIZED": binding.WorkerParams.SERIALIZED,
    "UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK": binding.WorkerParams.IGNORE_REQUEST_LEAK,
    "UCP_LISTENER_PARAM_FIELD_SOCK_ADDR": binding.ListenerParams.SOCK_ADDR,
    "UCP_LISTENER_PARAM_FIELD_CONN_HANDLER": binding.ListenerParams.CONN_HANDLER,
    "UCP_LISTENER_ATTR_FIELD_SOCKADDR": binding.ListenerAttributes.SOCKADDR,
    "UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR": binding.ConnectionRequestAttributes.CLIENT_ADDR,
    "UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID": binding.ConnectionRequestAttributes.CLIENT_ID,
    "UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE": binding.EndpointParams.ERR_HANDLING_MODE,
    "UCP_EP_PARAM_FIELD_ERR_HANDLER": binding.EndpointParams.ERR_HANDLER,
    "UCP_EP_PARAM_FIELD_SOCK_ADDR": binding.EndpointParams.SOCK_ADDR,
    "UCP_EP_PARAM_FIELD_FLAGS": binding.EndpointParams.FLAGS,
    "UCP_EP_PARAM_FIELD_CONN_REQUEST": binding.EndpointParams.CONN_REQUEST,
    "UCP_EP_PARAMS_FLAGS_CLIENT_SERVER": binding.EndpointParams.CLIENT_SERVER,
    "UCP_EP_PARAMS_FLAGS_NO_LOOPBACK": binding.EndpointParams.NO_LOOPBACK,
    "UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID": binding.EndpointParams.SEND_CLIENT_ID,
    "UCP_ERR_HANDLING_MODE_NONE": binding.EndpointParams.MODE_NONE,
    "UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR": binding.EndpointAttributes.REMOTE_SOCKADDR,
    "UCP_EP_ATTR_FIELD_TRANSPORTS": binding.EndpointAttributes.TRANSPORTS,
    "UCP_MEM_MAP_PARAM_FIELD_ADDRESS": binding.MapParams.ADDRESS,
    "UCP_MEM_MAP_PARAM_FIELD_LENGTH": binding.MapParams.LENGTH,
    "UCP_MEM_MAP_PARAM_FIELD_PROT": binding.MapParams.PROT,
    "UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE": binding.MapParams.MEMORY_TYPE,
    "UCP_MEM_MAP_PROT_LOCAL_READ": binding.MapParams.LOCAL_READ,
    "UCP_MEM_MAP_PROT_REMOTE_READ": binding.MapParams.REMOTE_READ,
    "UCP_OP_ATTR_FIELD_DATATYPE": binding.RequestParams.DATATYPE,
    "UCP_OP_ATTR_FIELD_FLAGS": binding.RequestParams.FLAGS,
    "UCP_OP_ATTR_FIELD_MEMORY_TYPE": binding.RequestParams.MEMORY_TYPE,
    "UCP_DATATYPE_IOV": binding.RequestParams.IOV,
    "UCP_EP_CLOSE_FLAG_FORCE": binding.RequestParams.FORCE_CLOSE,
    "UCP_REQUEST_ATTR_FIELD_INFO_STRING": binding.RequestAttributes.INFO_STRING,
    "UCP_REQUEST_ATTR_FIELD_INFO_STRING_SIZE": binding.RequestAttributes.INFO_STRING_SIZE,
    "UCP_AM_RECV_ATTR_FLAG_RNDV": binding.AmReceived.RENDEZVOUS,
    "UCP_AM_HANDLER_PARAM_FIELD_ID": binding.AmHandler.ID,
    "UCP_AM_HANDLER_PARAM_FIELD_FLAGS": binding.AmHandler.FLAGS,
    "UCP_AM_HANDLER_PARAM_FIELD_CB": binding.AmHandler.CALLBACK,
    "UCP_AM_FLAG_WHOLE_MSG": binding.AmHandler.WHOLE_MESSAGE,
}


def test_structures_and_constants(tmp_path: Path) -> None:
    """Every field lies where a C compiler puts it, every structure has its size, and every constant its value."""
    folder, compiler = wheel_folder(), shutil.which("cc")
    if folder is None or compiler is None:
        pytest.skip("needs the header of the wheel, and a C compiler")
    lines, expected = [], []
    for name, structure in STRUCTURES.items():
        lines.append(f'printf("%zu\\n", sizeof({name}));')
        expected.append(ctypes.sizeof(structure))
        for field, *_ in structure._fields_:
            lines.append(f'printf("%zu\\n", offsetof({name}, {field}));')
            expected.append(getattr(structure, field).offset)
    for name, value in CONSTANTS.items():
        lines.append(f'printf("%zu\\n", (size_t)({name}));')
        expected.append(value)
    lines.append('printf("%zu\\n", sizeof(ucs_status_t));')
    expected.append(1)
    for status in binding.Status:
        lines.append(f'printf("%d\\n", (int)({_c_name(status)}));')
        expected.append(int(status))
    source = "#include <stdio.h>\n#include <stddef.h>\n#include <ucp/api/ucp.h>\nint main(void) {\n"
    (tmp_path / "offsets.c").write_text(source + "\n".join(lines) + "\nreturn 0; }\n")
    include = folder.parent / "include"
    subprocess.run([compiler, "-I", include, tmp_path / "offsets.c", "-o", tmp_path / "offsets"], check=True)
    printed = subprocess.run([tmp_path / "offsets"], check=True, capture_output=True, text=True).stdout
    assert [int(line) for line in printed.split()] == expected


def _c_name(status: binding.Status) -> str:
    names = {"OK": "OK", "IN_PROGRESS": "INPROGRESS"}
    return f"UCS_{names.get(status.name, f'ERR_{status.name}')}"


def test_version_and_words() -> None:
    """The library says what it is, and puts a status into words."""
    assert library().version >= (1, 22, 0)
    assert "Invalid" in library().words(binding.Status.INVALID_PARAM)
