"""The exceptions of a failing compile, and the codes of all errors of tcdebug."""
