from epymarl_fairtest.commands import main

if __name__ == "__main__":
    raise SystemExit(main())
