"""Reruns, judges, bisects and shrinks what torch.compile fails on, and writes repro scripts."""
