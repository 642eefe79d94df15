"""The registry of strategies: a new one is one file and one line here."""

from epymarl_fairtest.baselines.gmt import GmtOptions, gmt
from epymarl_fairtest.baselines.hill_climber import HillClimberOptions, hill_climber
from epymarl_fairtest.baselines.mastest import MASTestOptions, mastest
from epymarl_fairtest.baselines.random import random
from epymarl_fairtest.baselines.starla import StarlaOptions, starla
from epymarl_fairtest.baselines.start_surrogate import StartSurrogateOptions, start_surrogate
from epymarl_fairtest.campaign import Method
from epymarl_fairtest.search.fairtest import fairtest

STRATEGIES: dict[str, Method] = {
    "fairtest": Method(fairtest),
    "random": Method(random),
    "gmt": Method(gmt, GmtOptions, needs=("proposable",)),
    "mastest": Method(mastest, MASTestOptions),
    "starla": Method(starla, StarlaOptions),
    "hill_climber": Method(hill_climber, HillClimberOptions, needs=("restorable",)),
    "start_surrogate": Method(start_surrogate, StartSurrogateOptions),
}
