#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes the man pages except those of the tool, from Doxygen's XML of the headers and of the texts beside this file.

docs/man/render.py <folder of the XML> <version> <folder of the pages>

<name>.<section>.dox is the text of one page; the page also shows the declarations of the text's group in a header. The
other functions and structures of the group are pages that refer to that page.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from roff import Inline, blocks, bold, description, escaped, italic, line, tidied

TEXTS = Path(__file__).parent
OWN_LIBRARIES = ("verbs", "libfabric", "ucp")  # headers of other libraries than libpinfold
ROOM = 71  # columns of a declaration: 78, less the indentation
LEADS = {"RETURN VALUE": "Errors.", "ATTRIBUTES": "Threads."}  # paragraphs of pinfold.h that each page repeats


# Declarations of a header


def declared(member):
    """Returns a function, or a member of a structure, as in C."""
    kind, name, rest = ("".join(member.find(part).itertext()) for part in ("type", "name", "argsstring"))
    between = "" if kind.endswith("*") else " "
    return re.sub(r"(\w+)\(\* ?(\w+)\)", r"\1 (*\2)", f"{kind}{between}{name}{rest};")


def place_to_break(rest):
    """Returns the place behind the last argument that fits, or before the first argument; 0 if there is none."""
    comma = rest.rfind(", ", 0, ROOM)
    return comma + 1 if comma >= 0 or rest.startswith(" ") else rest.find("(", 0, ROOM) + 1


def wrapped(declaration):
    """Returns the lines of a declaration, broken between arguments: bold, with the names of arguments in italics."""
    lines, rest = [], declaration
    while len(rest) > ROOM and (cut := place_to_break(rest)):
        lines.append(rest[:cut])
        rest = " " * 8 + rest[cut:].lstrip()
    arguments = re.compile(r"\b(?!void)(\w+)(?=[,)])")
    return [
        line("".join((bold, italic)[place % 2](part) for place, part in enumerate(arguments.split(one)) if part))
        for one in [*lines, rest]
    ]


class Group:
    """The declarations of a section of a header."""

    def __init__(self, xml, compound):
        self.xml = xml
        members = sorted(compound.iter("memberdef"), key=lambda one: int(one.find("location").get("line")))
        self.functions, self.types, self.enums, self.macros = (
            [one for one in members if one.get("kind") == kind] for kind in ("function", "typedef", "enum", "define")
        )

    def header(self):
        return self.functions[0].find("location").get("file").removeprefix("include/")

    def library(self):
        stem = Path(self.header()).stem
        name = f"pinfold-{stem}" if stem in OWN_LIBRARIES else "pinfold"
        return [f"{bold('-l' + name)}, {bold('pkg-config --cflags --libs ' + name)}"]

    def names(self):
        return [one.findtext("name") for one in self.functions]

    def type_names(self):
        return [one.findtext("name") for one in self.types]

    def synopsis(self):
        lines = [".nf", rf"\fB#include <{self.header()}>\fP"]
        for one in self.functions:
            lines += [".PP", *wrapped(declared(one))]
        return [*lines, ".fi"]

    def function_texts(self, inline):
        lines = []
        for one in self.functions:
            lines += [".TP", bold(one.findtext("name")) + "()", *description(one, inline)]
        return lines

    def type_texts(self, inline):
        lines = []
        for one in self.types:
            lines += [".SS " + one.findtext("name"), *description(one, inline)]
            refers = one.find("type/ref")
            structure = self.xml / f"{refers.get('refid')}.xml" if refers is not None else None
            if structure and structure.exists():
                for member in ElementTree.parse(structure).iter("memberdef"):
                    tag, *more = wrapped(declared(member))
                    lines += [".TP", tag, *(part for one in more for part in (".TQ", one))]
                    lines += description(member, inline)
        return lines

    def constant_texts(self, inline):
        lines = []
        for one in self.macros:
            if one.findtext("initializer").startswith("__attribute__"):
                continue
            lines += [".TP", bold(one.findtext("name")) + " " + escaped("".join(one.find("initializer").itertext()))]
            lines += description(one, inline)
        for one in self.enums:
            lines += [".PP", *description(one, inline)]
            for value in one.findall("enumvalue"):
                number = value.findtext("initializer").removeprefix("= ")
                lines += [".TP", f"{bold(value.findtext('name'))} ({escaped(number)})", *description(value, inline)]
        return lines


# Pages


def lowered(brief):
    """Returns a brief description in the form of the section NAME."""
    return brief[0].lower() + brief[1:].rstrip(". ")


class Page:
    def __init__(self, text, xml):
        self.name, self.section = text.stem.rsplit(".", 1)
        kind, key = re.search(r"^\\(page|defgroup) (\w+)", text.read_text(), re.M).groups()
        file = xml / (f"{key}.xml" if kind == "page" else f"group__{key.replace('_', '__')}.xml")
        self.compound = ElementTree.parse(file).find("compounddef")
        self.group = Group(xml, self.compound) if kind == "defgroup" else None

    def links(self):
        names = self.group.names() + self.group.type_names() if self.group else []
        return [one for one in names if one != self.name]

    def head(self, version, manual):
        brief = "".join(self.compound.find("briefdescription").itertext()).strip()
        names = [self.name] + ([one for one in self.group.names() if one != self.name] if self.group else [])
        lines = [f'.TH {self.name} {self.section} "" "pinfold {version}" "{manual}"']
        lines += [".nh", ".ad l"]  # does not break names
        return [*lines, ".SH NAME", ", ".join(map(escaped, names)) + r" \- " + lowered(brief)]

    def body(self, inline, rules, siblings):
        sections = {"DESCRIPTION": []}
        for one in self.compound.find("detaileddescription"):
            if one.tag == "para":
                sections["DESCRIPTION"] += blocks(one, inline)
            elif one.tag == "sect1":
                lines = sum((blocks(paragraph, inline) for paragraph in one.findall("para")), [])
                sections[one.findtext("title").upper()] = lines
            else:
                raise ValueError(f"no way to show <{one.tag}> in {self.name}")
        if self.group:
            sections = self.with_declarations(sections, inline, rules)
        others = [("pinfold", "1")] + [(one.name, one.section) for one in siblings if one is not self]
        sections["SEE ALSO"] = [", ".join(f"{bold(name)}({section})" for name, section in others)]
        return sum(([f".SH {title}", *lines] for title, lines in sections.items() if lines), [])

    def with_declarations(self, sections, inline, rules):
        first = {"LIBRARY": self.group.library(), "SYNOPSIS": self.group.synopsis()}
        first |= {"DESCRIPTION": sections.pop("DESCRIPTION") + self.group.function_texts(inline)}
        first["TYPES"] = self.group.type_texts(inline)
        first["CONSTANTS"] = self.group.constant_texts(inline)
        last = {"EXAMPLES": sections.pop("EXAMPLES", [])}
        if "RULES" in sections:
            return first | sections | last
        rule = {title: blocks(rules[lead], inline)[1:] for title, lead in LEADS.items()}
        return first | {"RETURN VALUE": rule["RETURN VALUE"]} | sections | {"ATTRIBUTES": rule["ATTRIBUTES"]} | last


def rules_of(xml):
    """Returns the paragraphs of pinfold.h by the words at their start, without these words."""
    found = {}
    for paragraph in ElementTree.parse(xml / "pinfold_8h.xml").find("compounddef/detaileddescription"):
        lead = paragraph.find("bold")
        if lead is not None:
            found[lead.text] = paragraph
            paragraph.text = (lead.tail or "").lstrip()
            paragraph.remove(lead)
    return found


def main(xml, version, folder):
    xml, folder = Path(xml), Path(folder)
    pages = [Page(text, xml) for text in sorted(TEXTS.glob("*.dox"), key=lambda one: one.name)]
    inline = Inline({one.name for one in pages if one.section == "3"} | {name for one in pages for name in one.links()})
    for page in pages:
        place = folder / f"man{page.section}"
        place.mkdir(parents=True, exist_ok=True)
        manual = "The C interface of pinfold" if page.group else "pinfold"
        lines = tidied(page.head(version, manual) + page.body(inline, rules_of(xml), pages))
        (place / f"{page.name}.{page.section}").write_text("\n".join(lines) + "\n")
        for name in page.links():
            (place / f"{name}.{page.section}").write_text(f".so man{page.section}/{page.name}.{page.section}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
