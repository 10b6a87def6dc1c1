"""Solutions that are taken up where they stopped.

======================  ================================================================
``marked_files``        files that know of which run and options they are
``sweep_state``         the state of a sweep in a file
``checkpoint``          the replicates that are done, and the states of their sweeps
======================  ================================================================
"""
