"""Cases that need a GPU, or are tried on the fake one."""
