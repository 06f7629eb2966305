"""The command line: every subcommand and flag, and nothing else."""
