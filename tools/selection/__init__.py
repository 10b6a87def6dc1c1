"""Which tests can see a change: the import graph, and what differs from an earlier commit.

===========  =====================================================================
``tree``     the files of a clone: which of them are modules
``names``    what a module imports and uses: attributes, strings, documents
``graph``    edges between files, and what a test module can reach
``changes``  files that differ from a commit in more than words
``record``   the commit at which all tests were last seen to pass
``plugin``   the options ``--changed-since`` and ``--write-record`` of pytest
===========  =====================================================================
"""
