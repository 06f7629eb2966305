"""What a program can use: `import tcdebug` in scripts, notebooks, and as a backend."""
