"""Programs that a script packages with AOTInductor, as they are watched and observed."""
