"""FairTest: does a trained MARL team share its rewards fairly?

Importing the package registers the environments that pay a fairness allocation, so that
`env_args.key="epymarl_fairtest:mpe-tag-v0"` works wherever gymnasium is used.
"""

__version__ = "0.1.0"

from epymarl_fairtest.tasks import register_environments

register_environments()
