"""The embedded compiler: an FX graph in, a fast callable out, an event at every step."""
