"""What tests of Bowstring, and of code that uses it, are made of: a fake device that behaves like a GPU.

Importing this package registers the fake device.
"""

from bowstring.testing.fake_array import FakeArray, OnlyCurrent
from bowstring.testing.fake_device import FakeDevice, FakeDriverError, FakeStatistics, fake_device

__all__ = ["FakeArray", "FakeDevice", "FakeDriverError", "FakeStatistics", "OnlyCurrent", "fake_device"]


def __dir__() -> list[str]:
    return __all__
