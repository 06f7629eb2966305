"""The commands below `tcdebug logs`."""
