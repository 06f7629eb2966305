"""What can fail, each with how to run it, make it smaller and write it down: graphs and scripts."""
