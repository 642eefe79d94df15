"""The gallery of the site shows pages that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_docs import ROOT


@pytest.mark.docs
def test_the_gallery_leads_to_a_page_of_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(ROOT / "tools")
    import gallery

    small = {"method": "random", "budget": 60, "explain": 0, "replay": 0, "random_team": 0, "progress": False}
    monkeypatch.setattr(gallery, "SETTINGS", small)
    monkeypatch.setattr(gallery, "RUNS", {"lbf-qmix": gallery.RUNS["lbf-qmix"]})
    shown = gallery.page_of(tmp_path / "gallery")
    links = re.findall(r"\]\(([^)]+)\)", shown)
    assert links == re.findall(r'src="([^"]+)"', shown)
    assert [Path(link).name for link in links] == ["index.html", "side-by-side.html", "repair.html"]
    assert all("<h1>" in (tmp_path / link).read_text(encoding="utf-8") for link in links)
    assert gallery.page_of(tmp_path / "gallery") == shown, "runs are made once, pages anew"
