"""The command line."""


def main() -> None:
    """Run the command line."""
    from largen.cli.app import app

    app()


__all__ = ["main"]
