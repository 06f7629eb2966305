"""What stands between a program and its backends: recording, capturing and watching graphs."""
