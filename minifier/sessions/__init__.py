"""The processes that run a user's script for a command."""
