"""The one line in a host's main.py: `import epymarl_fairtest.hook` makes `fairtest=True` work."""

from epymarl_fairtest.host.attach import activate

activate()
