"""The loop IR: nodes, index arithmetic, printer, parser, interpreter and verifier."""
