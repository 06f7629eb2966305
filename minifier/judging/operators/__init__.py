"""Whether operators do what their registrations say, which compilers trust."""
