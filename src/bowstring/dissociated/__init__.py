"""The Dissociated IPC protocol: what producers and consumers say to each other, without any IO."""
