"""Pages in a browser: how one is opened, and what any must pass, as scripts that name what does not.

A check returns a list of strings, empty where all is well.
"""

# ruff: noqa: E501 (scripts)

from typing import Any


def visit(browser: Any, address: str, *, width: int = 1280, scheme: str = "light", media: str = "") -> Any:
    """The page, opened afresh, as wide and as dark as wanted; nothing is left in the logs of earlier ones."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
    for log in ("browser", "performance"):
        browser.get_log(log)
    browser.get("about:blank")
    browser.get(address)
    return browser


CONTRAST = """
const parsed = (colour) => { const n = (colour.match(/[\\d.]+/g) || []).map(Number); return [n[0], n[1], n[2], n[3] ?? 1]; };
const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
  .reduce((sum, c, n) => sum + c * [0.2126, 0.7152, 0.0722][n], 0);
const over = (front, back) => [0, 1, 2].map((n) => front[n] * front[3] + back[n] * (1 - front[3]));
const behind = (element) => {
  if (!element) return [255, 255, 255];
  const style = getComputedStyle(element), own = parsed(style.backgroundColor);
  return own[3] === 1 ? own : over(own, behind(element.parentElement));
};
const found = new Set(), walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const text = walker.currentNode.textContent.trim(), element = walker.currentNode.parentElement;
  if (!text || element.closest('script, style, option, noscript') || !element.checkVisibility({visibilityProperty: true})) continue;
  const style = getComputedStyle(element), box = element.getBoundingClientRect();
  if (box.right < 0 || element.disabled) continue;
  const ink = parsed(element.closest('svg') ? style.fill : style.color), paper = behind(element);
  const [a, b] = [light(over(ink, paper)), light(paper)].sort((x, y) => y - x), ratio = (a + 0.05) / (b + 0.05);
  const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  if (ratio < (large ? 3 : 4.5)) found.add(`${ratio.toFixed(2)} ${element.tagName}.${element.className?.baseVal ?? element.className}: ${text.slice(0, 40)}`);
}
return [...found];
"""

NAMED = """
const found = [], seen = (element) => element.checkVisibility();
if (!document.documentElement.lang) found.push('no language');
if (!document.title) found.push('no title');
if (document.querySelectorAll('h1').length !== 1) found.push('not one h1');
if (!document.querySelector('main')) found.push('no main');
let level = 1;
for (const head of [...document.querySelectorAll('h1, h2, h3, h4')].filter(seen)) {
  const own = Number(head.tagName[1]);
  if (own > level + 1) found.push(`h${own} after h${level}: ${head.textContent.slice(0, 40)}`);
  level = own;
}
for (const image of document.querySelectorAll('img')) if (!image.hasAttribute('alt')) found.push('an image without words');
for (const drawing of document.querySelectorAll('svg:not([aria-hidden=true])')) {
  if (!drawing.closest('[aria-hidden=true]') && !drawing.getAttribute('aria-label') && !drawing.querySelector('title')) found.push('a drawing without words');
}
for (const part of document.querySelectorAll('.scroll')) {
  if (part.scrollWidth > part.clientWidth + 1 && part.tabIndex < 0) found.push(`scrolls, but not by keyboard: ${part.textContent.trim().slice(0, 40)}`);
}
const ids = [...document.querySelectorAll('[id]')].map((element) => element.id);
for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) found.push(`twice: #${id}`);
for (const link of document.querySelectorAll('a[href^="#"]')) if (!document.getElementById(link.hash.slice(1))) found.push(`leads nowhere: ${link.hash}`);
return found;
"""

REACHABLE = """
return [...document.querySelectorAll('a[href], button, input, select, summary, [tabindex="0"]')]
  .filter((element) => element.checkVisibility() && !element.disabled && element.tabIndex >= 0).length
"""
