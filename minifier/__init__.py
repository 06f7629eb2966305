"""Reruns, judges, bisects and shrinks programs that torch.compile fails on; writes repros."""
