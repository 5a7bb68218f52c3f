"""What `scripts/gpu_session.sh` runs on a GPU that is lent for minutes, besides the tests."""
