"""Checkpoints, from which an interrupted solution resumes.

======================  ================================================================
``marked_files``        files that contain marks of their run and options
``sweep_state``         the state of a sweep in a file
``checkpoint``          the finished replicates, and the states of their sweeps
======================  ================================================================
"""
