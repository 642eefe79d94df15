"""The package. `pyproject.toml` only holds tool settings."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (ROOT / "epymarl_fairtest" / "core" / "version.py").read_text()).group(1)

# Folders that lie beside the package in a clone and inside it in a wheel (epymarl_fairtest/core/shipped.py).
SHIPPED = {f"epymarl_fairtest.shipped.{name}": name for name in ("config", "src_patches", "policies")}

setup(
    name="epymarl-fairtest",
    version=VERSION,
    description="Fairness testing of trained multi-agent teams, as a plug-in for EPyMARL",
    long_description=(ROOT / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    keywords="multi-agent reinforcement learning, fairness, testing, search-based testing, EPyMARL",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Framework :: Jupyter",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Software Development :: Testing",
        "Typing :: Typed",
    ],
    python_requires=">=3.10,<3.13",
    packages=[*find_packages(include=["epymarl_fairtest", "epymarl_fairtest.*"]), *SHIPPED],
    package_dir=SHIPPED,
    package_data={
        "epymarl_fairtest": ["py.typed", "tasks/tag/*.npz", "report/static/*", "report/templates/**/*.html"],
        **{name: ["**/*"] for name in SHIPPED},
    },
    include_package_data=False,
    install_requires=[
        "torch>=2.2,<3",
        "numpy>=1.26,<3",
        "sacred>=0.8.5,<0.9",
        "setuptools<81",  # sacred imports pkg_resources
        "pyyaml>=6,<7",
        "gymnasium>=1.0,<2",
        "pettingzoo>=1.27,<2",  # mpe2 needs its AgentSelector
        "mpe2>=1.1,<2",
        "lbforaging>=2.0,<3",
        "tqdm>=4.60,<5",
        "numba>=0.60,<1",
        "llvmlite>=0.43,<1",  # numba brings it
        "scipy>=1.11,<2",
        "scikit-learn>=1.4,<2",
        "threadpoolctl>=3.1,<4",  # scikit-learn brings it
        "moocore>=0.2,<1",
        "joblib>=1.4,<2",
        "matplotlib>=3.10,<4",
        "pillow>=10.1,<14",  # matplotlib brings it; from here on its own font has sizes
        "POT>=0.9,<1",
        "jinja2>=3.1,<4",  # the page of a run
        "filelock>=3.30,<5",  # one writer per run; lock_descriptor from here on
        "shtab>=1.9,<2",  # completion; fish from here on
    ],
    extras_require={
        # What PyMARLzoo+ 1.1.0 needs to run; install it itself with --no-deps (its own list pulls torchvision
        # and transformers).
        "pymarlzoo": ["rich", "opencv-python-headless", "seaborn", "scikit-learn", "six"],
        "dask": ["distributed>=2024.1"],
        "ray": ["ray>=2.9"],
        "notebook": ["pandas>=2,<4"],  # result.failures
        "qd": ["ribs>=0.12,<1"],  # the method map_elites
        "bench": ["vmas>=1.4", "jaxmarl>=0.0.7"],
        "docs": ["mkdocs-material>=9.5,<10"],
        "test": [
            "build>=1.2",
            "pandas>=2,<4",
            "pytest>=8",
            "cloudpickle",
            "hypothesis>=6.100",
            "selenium>=4.10",
            "pytest-xdist>=3.5",
            "rware>=2.0,<3",  # the task warehouse
        ],
        "check": ["ruff==0.17.4", "mypy==2.4.1", "types-PyYAML", "types-tqdm"],
    },
    entry_points={"console_scripts": ["fairtest=epymarl_fairtest.commands:main"]},
)
