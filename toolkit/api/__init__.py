"""The Python API: `import tcdebug` in scripts and notebooks, and the backend."""
