"""Serving: what a server does for one data set and for one reader."""
