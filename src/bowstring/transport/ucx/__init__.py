"""``ucx:``, the transport that the specification was made for."""
