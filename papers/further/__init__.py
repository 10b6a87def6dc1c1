"""Papers of which one figure each is computed: a module a paper, named by its authors."""
