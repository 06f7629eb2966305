"""One file per subcommand. Each turns arguments into a library call and an exit status."""
