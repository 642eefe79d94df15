from epymarl_fairtest.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
