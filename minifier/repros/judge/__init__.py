"""The judge of repro scripts, which they import or contain; it imports only torch and Python."""
