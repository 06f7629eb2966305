"""Subcommands of `tcdebug logs`."""
