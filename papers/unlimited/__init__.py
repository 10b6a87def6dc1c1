"""The ntk-unlimited paper (arXiv 2508.11522): first-order corrections against samples."""
