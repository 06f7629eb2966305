"""Units of higher-order operators, which inductor compiles with the functions that they call."""
