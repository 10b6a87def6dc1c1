"""Mean-field limits: wide networks whose features move while they learn."""
