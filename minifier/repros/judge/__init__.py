"""The judge of repro scripts, which they import or contain; it needs only torch and Python."""
