"""Scripts that reproduce a failure on their own, and how they are verified."""
