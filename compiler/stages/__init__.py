"""What runs a stage of a compile: time, events, IR as text, and recovery from a failure."""
