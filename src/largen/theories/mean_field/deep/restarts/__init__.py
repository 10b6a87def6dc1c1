"""Checkpoints, from which an interrupted solution resumes.

======================  ================================================================
``sweep_state``         the state of a sweep in a file
``checkpoint``          the finished replicates, and the states of their sweeps
======================  ================================================================
"""
