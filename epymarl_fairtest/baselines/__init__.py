"""The strategies FairTest is compared with, one file each, all under the contract of `campaign.py`."""
