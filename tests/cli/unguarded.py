"""Imported by the processes of a trial: the fake driver maps nothing read-only, as some of virtual GPUs."""

from bowstring.testing import fake_device

fake_device().driver.gives_read_only = False
