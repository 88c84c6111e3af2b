#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds Markdown, comments, messages and help to what a program can check of the house style.

usage: prose_test.py [FILE ...]

Checks these files, or every file of the tree. Prints each finding, and exits
with status 1 if there is one.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORDS_MOST = 25  # of a sentence
COMMENT_MOST = 80  # columns
CODE_MOST = 100
GENERATED = {"docs/reference/cli.md", "docs/internals/headers.md"}  # their sources are checked
SOURCES = (".cc", ".h", ".cu", ".cuh", ".proto", ".pml")
SCRIPTS = (".py", ".sh", ".cmake")
FOLDERS = (
    "base|protocol|storage|exchange|gossip|peer|coordinator|daemon|cli|dashboard|diffusion|engine|tests|"
    "cmake|deploy|docs|systemd"
)

# Each with what to write instead.
PHRASES = [
    (r"\bmend(s|ed|ing)?\b", "repair"),
    (r"\bwhoever\b", "the node that …, any …"),
    (r"\bwhat is more\b", "requests above N per second"),
    (r"\bleaves? with \d", "exits with status N"),
    (r"\btold alike\b", "reported the same way"),
    (r"\b(is|are) (not )?heard\b", "served, received, dropped"),
    (r"\bnobody misses\b", "say what happens"),
    (r"\bdone with\b", "finished"),
    (r"\bmemory that end(s|ed)\b", "out of memory"),
    (r"\blook(s|ed|ing)? after\b", "supervise, keep"),
    (r"\bsa(y|ys|id) again\b", "retry"),
    (r"\bfor ever\b", "without end"),
    (r"\bso that a \w+ \w+ expires nobody\b", "must not expire leases"),
]
# "A planned end" of a lease and rounds "planned by time" are no plans of ours.
PLANS = re.compile(
    r"\b(will be|planned(?! (end|by))|(a|the) later version|not (yet )?built|"
    r"in the future|TODO|FIXME)\b",
    re.IGNORECASE,
)

SEPARATORS = re.compile(r"(?<=[.!?])[)\"'*_]*\s+(?=[\"'(*_`\[]*[A-Z0-9`\[])")
SHORTHAND = re.compile(r"\b(e\.g|i\.e|etc|vs|cf|al|no|approx|min|max|Fig|Eq)\.\s")


class Findings:
    def __init__(self):
        self.list = []

    def add(self, line, kind, text):
        self.list.append((line, kind, text.strip()[:90]))


def is_marked_plan(path):
    return path == "docs/roadmap.md"


def words_of(sentence):
    """How many words it has; a code span and a link's text count as one."""
    text = re.sub(r"`[^`]*`", "X", sentence)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return len([word for word in text.split() if re.search(r"[A-Za-z0-9]", word)])


def sentences_of(text):
    masked = re.sub(r"`[^`]*`", lambda m: "X" * len(m[0]), text)
    masked = re.sub(r"\]\([^)]*\)", lambda m: "]" + "X" * (len(m[0]) - 1), masked)
    masked = SHORTHAND.sub(lambda m: m[0].replace(". ", "X "), masked)
    begin = 0
    for gap in SEPARATORS.finditer(masked):
        yield text[begin : gap.start()]
        begin = gap.end()
    yield text[begin:]


def check_words(found, number, text):
    for pattern, instead in PHRASES:
        if match := re.search(pattern, text, re.IGNORECASE):
            found.add(number, f"write '{instead}' for '{match[0]}'", text)


def check_plans(found, number, text, path):
    if not is_marked_plan(path) and (match := PLANS.search(text)):
        found.add(number, f"'{match[0]}': a plan belongs to docs/roadmap.md", text)


def markdown(path, lines, found):
    fenced = False
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        if fenced or not line.strip() or line.startswith(("#", "    ", "<!--", "![")):
            continue
        prose = re.sub(r"`[^`]*`", "`X`", line)
        check_words(found, number, prose)
        check_plans(found, number, prose, path)
        if line.startswith("|"):
            cells = [cell for cell in re.split(r"(?<!\\)\|", line) if cell.strip(" -:")]
            for cell in cells:
                for sentence in sentences_of(cell.strip()):
                    if words_of(sentence) > WORDS_MOST:
                        found.add(number, f"{words_of(sentence)} words in a sentence", sentence)
            continue
        item = re.match(r"\s*([-*]|\d+\.)\s+", line)
        sentences = [s for s in sentences_of(line[item.end() :] if item else line) if s.strip()]
        for sentence in sentences:
            if words_of(sentence) > WORDS_MOST:
                found.add(number, f"{words_of(sentence)} words in a sentence", sentence)
        # A list's entry is one block; elsewhere a line is a sentence.
        if not item and len(sentences) > 1:
            found.add(number, f"{len(sentences)} sentences in a line", line)
        is_whole = re.search(r"[.:!?;)*\]>|`…]$", line.rstrip()) or line.startswith(" ")
        if not item and not is_whole:
            found.add(number, "a sentence does not end with its line", line)


def comments_of(lines, mark):
    """(first line, text) of each block of whole-line comments."""
    block, first = [], 0
    for number, line in enumerate([*lines, ""], 1):
        stripped = line.strip()
        is_text = not stripped.startswith("#!") and "SPDX-License" not in stripped
        if stripped.startswith(mark) and is_text:
            if not block:
                first = number
            block.append(stripped[len(mark) :].strip())
        elif block:
            yield first, block
            block = []


def source(path, lines, found):
    mark = "#" if path.endswith(SCRIPTS) or path == "dev" else "//"
    for number, line in enumerate(lines, 1):
        stripped = line.strip()
        width = len(line.rstrip("\n"))
        is_comment = stripped.startswith(mark) and not stripped.startswith("#!")
        most = COMMENT_MOST if is_comment else CODE_MOST
        if width > most and "http" not in line:
            found.add(number, f"{width} columns, expected at most {most}", line)
        trailing = re.search(rf"\s{mark} (.*)$", line)
        comment = stripped[len(mark) :] if is_comment else trailing[1] if trailing else ""
        messages = " ".join(re.findall(r'"((?:[^"\\]|\\.)*)"', line)) if not is_comment else ""
        check_words(found, number, comment + " " + messages)
        check_plans(found, number, comment, path)
    for first, block in comments_of(lines, mark):
        paragraphs = re.split(r"\n\n|\n(?=[-*] |\d+\. |  )", "\n".join(block))
        for paragraph in paragraphs:
            for sentence in sentences_of(" ".join(paragraph.split())):
                if words_of(sentence) > WORDS_MOST:
                    found.add(first, f"{words_of(sentence)} words in a sentence", sentence)


def without(pattern, text):
    """The text without what matches; lines keep their numbers."""
    return re.sub(pattern, lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL)


def links(path, text, found):
    """Paths in code spans and links of a document exist."""
    for number, line in enumerate(without(r"```.*?```", text).splitlines(), 1):
        for target in re.findall(r"\]\(([^)#\s]+)", line):
            is_outside = re.match(r"https?:|mailto:", target)
            if not is_outside and not (ROOT / path).parent.joinpath(target).exists():
                found.add(number, "a link leads nowhere", target)
        for name in re.findall(rf"`((?:{FOLDERS})/[\w./-]*)`", line):
            if path != "CHANGELOG.md" and not (ROOT / name).exists():
                found.add(number, "there is no such file", name)


def check(path):
    found = Findings()
    try:
        text = (ROOT / path).read_text()
    except (UnicodeDecodeError, FileNotFoundError):
        return found.list
    lines = text.splitlines()
    if path.endswith(".md"):
        if path not in GENERATED:
            body = without(r"<!-- generated .*?-->.*?<!-- end -->", text)
            markdown(path, body.splitlines(), found)
        links(path, text, found)
    else:
        source(path, lines, found)
    return found.list


def files():
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        names = listed.stdout.split("\n")
    else:  # no clone: a tree that was unpacked
        names = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if p.is_file()]
    for name in sorted(set(names)):
        if name.startswith(("build", "tests/fuzz/corpus/")) or name == "tests/prose_test.py":
            continue
        if name.endswith((".md", *SOURCES, *SCRIPTS)) or name == "dev":
            yield name


def main():
    arguments = sys.argv[1:]
    if {"-h", "--help"} & set(arguments):
        print(__doc__.strip())
        return
    names = [str(pathlib.Path(name).resolve().relative_to(ROOT)) for name in arguments]
    count = 0
    for name in names or files():
        for line, kind, text in check(name):
            print(f"{name}:{line}: {kind}: {text}")
            count += 1
    if count:
        sys.exit(f'{count} findings; the rules are in CONTRIBUTING.md, "Words"')


if __name__ == "__main__":
    main()
