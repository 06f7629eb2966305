"""Events: their schema, the log that writes them, and the run folder that contains them."""
