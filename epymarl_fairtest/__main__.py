"""`python -m epymarl_fairtest`: the `fairtest` command where no script is installed."""

from epymarl_fairtest.commands import main

if __name__ == "__main__":
    raise SystemExit(main())
