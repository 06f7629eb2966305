"""Watches the graphs of a program that runs as usual: a failure leaves a repro."""
