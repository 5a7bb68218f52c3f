"""Pages and plots, drawn from the JSON of a run alone."""
