"""The processes that cases start, and the state that they share with the system."""
