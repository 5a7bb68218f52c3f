"""What a user would use instead: engines, servers and stores that cases are measured beside."""
