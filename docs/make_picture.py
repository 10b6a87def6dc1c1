"""Draws ``picture.png``, that of the home page and of README: README's example, and its plot."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def main() -> None:
    """Run the example as it is printed, and draw the comparison."""
    code = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert code
    names: dict = {}
    exec(code.group(1), names)
    names["lg"].compare(names["limit"], names["nets"]).plot(Path(__file__).with_name("picture.png"))


if __name__ == "__main__":
    main()
