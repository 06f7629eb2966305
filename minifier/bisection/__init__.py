"""Which decisions of a compiler are at fault: search, confirmation, and how sure the answer is."""
