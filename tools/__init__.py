"""Programs for those who work on largen; they are not part of the library."""
