"""Files: written whole or not at all, and read only if they are what was written."""

from largen.files.contents import (
    is_archive,
    json_with_checksum,
    load_arrays,
    load_dataset,
    load_tree,
    read_json,
    save_arrays,
    save_dataset,
    save_figure,
    save_text,
)
from largen.files.whole import as_file, as_path, make_folder, write_whole

__all__ = [
    "as_file",
    "as_path",
    "is_archive",
    "json_with_checksum",
    "load_arrays",
    "load_dataset",
    "load_tree",
    "make_folder",
    "read_json",
    "save_arrays",
    "save_dataset",
    "save_figure",
    "save_text",
    "write_whole",
]
