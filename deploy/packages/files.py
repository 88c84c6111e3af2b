#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the manual page and the Debian changelog of one package."""

import argparse
import email.utils
import gzip
import os
import pathlib
import re
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def commands(program):
    """[(command, what its --help prints)] of the program, from docs/reference/cli.md."""
    text = (ROOT / "docs/reference/cli.md").read_text()
    heading = rf"^#+ ({re.escape(program)}(?: [^\n]*)?)\n\n"
    return re.findall(heading + r"```text\n(.*?)\n```", text, re.MULTILINE | re.DOTALL)


def escaped(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


def body(text):
    """What --help prints, as roff: "  NAME   MEANING" becomes a tagged paragraph."""
    out, literal = [], False

    def end_literal():
        nonlocal literal
        if literal:
            out.append(".EE")
        literal = False

    section = ""
    for line in text.splitlines():
        entry = re.fullmatch(r"  (\S.*?)(?:\s{2,}(\S.*))?", line)
        is_list = re.match(r"Options|Positionals|Subcommands|\[Option Group", section)
        more = re.fullmatch(r" {10,}(\S.*)", line)
        if not line.strip():
            end_literal()
            out.append(".PP")
        elif more:
            out.append(escaped(more[1]))
        elif entry and is_list:
            out += [".TP", f"\\fB{escaped(entry[1])}\\fR"]
            if entry[2]:
                out.append(escaped(entry[2]))
        elif line.startswith(" "):
            if not literal:
                out.append(".EX")
            literal = True
            out.append(escaped(line))
        else:
            end_literal()
            if line.endswith(":") and not line.startswith(" "):
                section = line
                out += [".PP", f"\\fB{escaped(line)}\\fR", ".br"]
            else:
                out.append(escaped(line) + ("" if line.endswith((",", " ")) else "\n.br"))
    end_literal()
    return out


def page(program, section, version):
    found = commands(program)
    if not found:
        raise SystemExit(f"docs/reference/cli.md has no section of {program}")
    summary = re.split(r"(?<=[.:])\s", found[0][1])[0].rstrip(".:")
    out = [
        '.\\" Made from docs/reference/cli.md by deploy/packages/files.py.',
        f'.TH {program.upper()} {section} "" "skerry {version}" "Skerry"',
        ".SH NAME",
        f"{escaped(program)} \\- {escaped(summary)}",
        ".SH DESCRIPTION",
        *body(found[0][1]),
    ]
    if len(found) > 1:
        out.append(".SH COMMANDS")
    for command, text in found[1:]:
        out += [f".SS {escaped(command)}", *body(text)]
    return "\n".join(out) + "\n"


def changelog(package, version, contact):
    stamp = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    return (
        f"{package} ({version}) unstable; urgency=medium\n\n"
        f"  * /usr/share/doc/skerry/CHANGELOG.md of the package skerry lists the changes.\n\n"
        f" -- {contact}  {email.utils.formatdate(stamp)}\n"
    )


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package")
    parser.add_argument("--section", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--contact", required=True)
    parser.add_argument("--page", type=pathlib.Path, required=True)
    parser.add_argument("--changelog", type=pathlib.Path, required=True)
    args = parser.parse_args()
    write(args.page, page(args.package, args.section, args.version))
    write(args.changelog, changelog(args.package, args.version, args.contact))


if __name__ == "__main__":
    main()
