"""The subcommands, one a file: arguments -> one library call -> exit status."""
