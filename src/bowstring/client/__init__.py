"""The client: opens data sets that servers publish, and reads their batches."""

from bowstring.client.names import list_datasets
from bowstring.client.opening import ConnectOptions, connect, endpoint_of

__all__ = ["ConnectOptions", "connect", "endpoint_of", "list_datasets"]
