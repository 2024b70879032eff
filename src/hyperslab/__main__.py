"""`python -m hyperslab` is the command `hyperslab`."""

from hyperslab.cli import main

if __name__ == "__main__":
    main()
