"""The compiler's own operators, registered with torch."""
