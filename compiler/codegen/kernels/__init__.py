"""The parts of code generation that all target languages share: addresses, sweeps, calls."""
