"""Everything that is printed, with rich. Its input is events and reports, never live objects."""
