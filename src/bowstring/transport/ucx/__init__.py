"""``ucx:``, the transport that the specification was made for: TCP, shared memory, RDMA and NVLink (`UCX`_).

.. _UCX: https://openucx.org
"""

from bowstring.transport.ucx.listening import dial, is_loopback, listen

__all__ = ["dial", "is_loopback", "listen"]
