"""One self-contained HTML file from a title, paragraphs, figures and tables: no request leaves it, in light or dark."""

from __future__ import annotations

import html
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


class Part(ABC):
    """Something on the page."""

    @abstractmethod
    def render(self, number: int) -> str:
        """Its HTML; `number` tells the parts of one page apart."""


@dataclass(frozen=True)
class Text(Part):
    """Paragraphs; `backticks` mark code."""

    paragraphs: Sequence[str]

    def render(self, number: int) -> str:
        return "\n".join(f"<p>{inline(paragraph)}</p>" for paragraph in self.paragraphs)


@dataclass(frozen=True)
class Points(Part):
    """A list of short points."""

    points: Sequence[str]

    def render(self, number: int) -> str:
        return "<ul>\n" + "\n".join(f"<li>{inline(point)}</li>" for point in self.points) + "\n</ul>"


@dataclass(frozen=True)
class Code(Part):
    """Code or a command, as it is."""

    text: str

    def render(self, number: int) -> str:
        return f"<pre><code>{html.escape(self.text.strip())}</code></pre>"


@dataclass(frozen=True)
class Figure(Part):
    """SVG panels side by side where there is room; each a description and its drawing. `colours` name what CSS may change."""

    panels: Mapping[str, str]
    caption: str
    colours: Mapping[str, str] = field(default_factory=dict)

    def render(self, number: int) -> str:
        drawings = [
            inline_svg(svg, f"f{number}p{i}-", label, self.colours)
            for i, (label, svg) in enumerate(self.panels.items())
        ]
        return (
            '<figure class="wide"><div class="panels">'
            + "\n".join(drawings)
            + f"</div>\n<figcaption>{inline(self.caption)}</figcaption></figure>"
        )


@dataclass(frozen=True)
class Table(Part):
    """Groups of rows under a header; `best[group]` says which cells of the group to emphasise."""

    columns: Sequence[str]
    groups: Mapping[str, Sequence[Sequence[str]]]
    best: Mapping[str, Sequence[Sequence[bool]]] = field(default_factory=dict)
    caption: str = ""
    numbers: bool = True  # aligned right

    def render(self, number: int) -> str:
        head = "".join(f'<th scope="col">{inline(column)}</th>' for column in self.columns)
        bodies = "\n".join(self._body(name, rows) for name, rows in self.groups.items())
        caption = f"<caption>{inline(self.caption)}</caption>" if self.caption else ""
        kind = "numbers" if self.numbers else "words"
        table = f'<table class="{kind}">{caption}<thead><tr>{head}</tr></thead>\n{bodies}</table>'
        return f'<div class="scroll">{table}</div>'

    def _body(self, name: str, rows: Sequence[Sequence[str]]) -> str:
        title = (
            f'<tr class="group"><th scope="rowgroup" colspan="{len(self.columns)}">{inline(name)}</th></tr>\n'
            if name
            else ""
        )
        best = self.best.get(name, [[False] * len(self.columns)] * len(rows))
        lines = []
        for row, emphasised in zip(rows, best, strict=True):
            first, *others = (
                f"<strong>{inline(cell)}</strong>" if strong else inline(cell)
                for cell, strong in zip(row, emphasised, strict=True)
            )
            lines.append(f'<tr><th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in others) + "</tr>")
        return f"<tbody>{title}" + "\n".join(lines) + "</tbody>"


@dataclass(frozen=True)
class Section:
    """A heading and what is under it."""

    title: str
    parts: Sequence[Part]


def page(title: str, lead: Sequence[str], sections: Sequence[Section], footer: str = "") -> str:
    """The whole file."""
    body = [
        f"<header><h1>{inline(title)}</h1>",
        *(f'<p class="lead">{inline(paragraph)}</p>' for paragraph in lead),
        "</header>",
    ]
    number = 0
    for section in sections:
        body.append(f"<section><h2>{inline(section.title)}</h2>")
        for part in section.parts:
            number += 1
            body.append(part.render(number))
        body.append("</section>")
    if footer:
        body.append(f"<footer>{inline(footer)}</footer>")
    return _PAGE.format(title=html.escape(title.replace("`", "")), style=_STYLE, body="\n".join(body))


def inline(text: str) -> str:
    """Text as HTML, with `code` between backticks.

    >>> inline("`N=6` < 7")
    '<code>N=6</code> &lt; 7'
    """
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def inline_svg(svg: str, prefix: str, label: str, colours: Mapping[str, str]) -> str:
    """An SVG file as an element: ids made unique, colours turned into CSS variables, what only a file needs left out."""
    element = svg[svg.index("<svg") :].strip()
    element = re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    element = re.sub(r'\s+xmlns(:xlink)?="[^"]*"', "", element).replace("xlink:href=", "href=")
    element = re.sub(r'\bid="', f'id="{prefix}', element)
    element = re.sub(r'href="#', f'href="#{prefix}', element)
    element = re.sub(r"url\(#", f"url(#{prefix}", element)
    for colour, name in colours.items():
        element = element.replace(colour, f"var(--{name})")
    attributes = f'<svg role="img" aria-label="{html.escape(label)}"'
    return re.sub(
        r'^<svg\b(.*?)\s(?:width|height)="[^"]*"(.*?)\s(?:width|height)="[^"]*"',
        lambda found: f"{attributes}{found[1]}{found[2]}",
        element,
        count=1,
    )


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""

_STYLE = """
:root { color-scheme: light dark;
  --paper: #fff; --ink: #24292f; --faint: #5f6772; --rule: #e4e7eb; --wash: #f5f6f8; --strong: #005a8e;
  --blue: #0072b2; --vermillion: #d55e00; --orange: #e69f00; --sky: #56b4e9; --green: #009e73; --purple: #cc79a7;
  --grey: #5f6368; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #14171a; --ink: #dfe3e8; --faint: #98a1ad; --rule: #2b3036; --wash: #1c2024; --strong: #7cc4f0;
  --blue: #2b8fd1; --vermillion: #e8702a; --orange: #e69f00; --sky: #7cc4f0; --green: #1fb48a; --purple: #e79ac8;
  --grey: #848b93; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 3rem 1.25rem 4rem; max-width: 46rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, sans-serif;
}
h1 { margin: 0 0 .6rem; font-size: 1.75rem; line-height: 1.25; letter-spacing: -.01em; text-wrap: balance; }
h2 { margin: 2.75rem 0 .6rem; font-size: 1.15rem; line-height: 1.3; }
p { margin: 0 0 .8rem; }
.lead { font-size: 1.0625rem; }
ul { margin: 0; padding-left: 1.15rem; }
li { margin: 0 0 .5rem; }
code { font: .875em ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace; overflow-wrap: anywhere; }
pre { margin: 0 0 .8rem; padding: .85rem 1rem; overflow-x: auto; background: var(--wash); border-radius: 6px; line-height: 1.5; }
pre code { white-space: pre-wrap; }
figure { margin: 0; }
.wide { margin: 0 calc(50% - min(50vw - 1.25rem, 31rem)); }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 1rem; }
.panels svg { display: block; width: 100%; height: auto; overflow: visible; }
.panels text { font-family: inherit !important; }
figcaption { max-width: 43.5rem; margin: .6rem auto 0; color: var(--faint); font-size: .9rem; }
.scroll { overflow-x: auto; }
.scroll + .scroll { margin-top: 1.75rem; }
table { width: 100%; border-collapse: collapse; font-size: .9375rem; font-variant-numeric: tabular-nums; }
caption { padding: 0 0 .6rem; color: var(--faint); font-size: .9rem; text-align: left; }
th, td { padding: .22rem .2rem .22rem .7rem; text-align: right; font-weight: 400; vertical-align: bottom; white-space: nowrap; }
th:first-child { padding-left: 0; text-align: left; }
thead th { padding-bottom: .4rem; border-bottom: 1px solid var(--faint); color: var(--faint); font-size: .8125rem;
  line-height: 1.3; white-space: normal; }
.group th { padding: .9rem 0 .2rem; border-bottom: 1px solid var(--rule); font-weight: 600; }
td strong { color: var(--strong); font-weight: 650; }
.words th, .words td { text-align: left; vertical-align: top; }
.words td { white-space: normal; }
.words th:first-child { width: 9rem; }
footer { margin-top: 3rem; padding-top: .8rem; border-top: 1px solid var(--rule); color: var(--faint); font-size: .875rem; }
@media print { body { max-width: none; padding: 0; } .wide { margin: 0; } section { break-inside: avoid; } }
"""
