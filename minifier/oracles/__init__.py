"""Ask what becomes of a case under toggles: scheduling, remembered answers, judges."""
