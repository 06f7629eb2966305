"""Processes of a script that uses CUDA, which no fork can use once it is initialised."""
