"""Operators that Dynamo adds to a graph, written as what it captures."""
