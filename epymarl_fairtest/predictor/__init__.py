"""The fairness predictor: how likely is an episode fair, judged from its recorded transitions alone?"""

from epymarl_fairtest.predictor.abstraction import Abstraction
from epymarl_fairtest.predictor.forest import Predictor, fit_predictor
from epymarl_fairtest.predictor.traces import Traces, traces_of, traces_of_sample

__all__ = ["Abstraction", "Predictor", "Traces", "fit_predictor", "traces_of", "traces_of_sample"]
