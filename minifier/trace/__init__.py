"""torch's structured trace, translated to events."""
