"""What a failing compile raises, and the codes of all errors of tcdebug."""
