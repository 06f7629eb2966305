"""Standalone scripts that reproduce a failure, and their verification."""
