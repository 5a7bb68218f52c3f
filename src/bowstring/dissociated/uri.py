"""The former home of :mod:`bowstring.dissociated.endpoint`, which pickles and programs name."""
