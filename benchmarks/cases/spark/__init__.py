"""From Spark to other processes."""
